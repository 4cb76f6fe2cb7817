//! Stacks: how one is built, mounted, recovered and taken down.

pub mod attach;
pub mod ext4;
pub mod tool;
