//! Keeps child processes from holding our descriptors while we let them go.
//!
//! Between `fork` and `exec` a child holds a copy of every descriptor, close
//! on exec or not. A mount or a loop device whose last descriptor *we* close in
//! that moment lives on in the child, and goes down when the child executes
//! its program: an unmount that writes to a crash image which is by then
//! another one. So starting a child and letting go exclude each other.

use std::io;
use std::process::{Child, Command};
use std::sync::{PoisonError, RwLock};

static FORKING: RwLock<()> = RwLock::new(());

/// Starts a child process. When this returns the child has executed its
/// program and holds nothing of ours.
///
/// # Errors
/// As [`Command::spawn`].
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let _alone = FORKING.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// Lets go of descriptors while no child is between `fork` and `exec`: mounts
/// and loop devices that `release` drops are down when this returns.
pub fn let_go<T>(release: impl FnOnce() -> T) -> T {
    let _none = FORKING.read().unwrap_or_else(PoisonError::into_inner);
    release()
}
