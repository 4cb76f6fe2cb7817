//! Thin, safe wrappers over the kernel's own calls: loop devices, the mount
//! API, the kernel log. Nothing here knows of drives or crashes.

pub mod fork;
pub mod kmsg;
pub mod loopdev;
pub mod mount;
pub mod socket;
