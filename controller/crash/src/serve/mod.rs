//! Servers that show a drive to a kernel. The drive model knows none of them.

pub mod fuse;
pub mod images;
pub mod memory;
pub mod process;
