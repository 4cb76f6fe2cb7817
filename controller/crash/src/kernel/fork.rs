//! Keeps child processes from holding our descriptors while we let them go.
//!
//! Between `fork` and the end of `exec` a child holds a copy of every
//! descriptor, close on exec or not. A mount or a loop device whose last
//! descriptor *we* close in that moment lives on in the child, and goes down
//! when the child's copy does: an unmount that writes to a crash image which is
//! by then another one.
//!
//! Starting a child and letting go therefore exclude each other, which makes
//! the case rare and not impossible: the parent goes on as soon as the child
//! has its new memory, a moment before the child's copies are closed. So
//! whoever lets go of a mount or a loop device also waits until the device
//! shows that nothing holds it any more.

use std::io;
use std::process::{Child, Command};
use std::sync::{PoisonError, RwLock};

static FORKING: RwLock<()> = RwLock::new(());

/// Starts a child process. When this returns the child has begun its program,
/// and is about to have closed what it held of ours.
///
/// # Errors
/// As [`Command::spawn`].
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let _alone = FORKING.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// Lets go of descriptors while no child is being started.
pub fn let_go<T>(release: impl FnOnce() -> T) -> T {
    let _none = FORKING.read().unwrap_or_else(PoisonError::into_inner);
    release()
}
