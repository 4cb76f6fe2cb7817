//! What every part of a run shares.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::RunError;
use crate::registry::Registry;

/// Most crash images judged at the same time.
pub const MAX_JOBS: usize = 256;

/// Sets a flag when it goes out of scope, by a panic too: a thread that waits
/// for the flag must not outwait a bug.
#[derive(Debug)]
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The run's surroundings.
#[derive(Debug)]
pub struct Context {
    /// Our own binary, which is started again as the drive.
    pub program: PathBuf,
    /// Set by Ctrl-C and SIGTERM.
    pub stop: Arc<AtomicBool>,
    /// What is set up.
    pub registry: Registry,
    /// Crash images judged at the same time.
    pub jobs: usize,
    /// Cuts go on through the unmount, not only to the last acknowledgement.
    pub through_unmount: bool,
}

impl Context {
    /// For `program`, with as many jobs as there are processors unless told.
    ///
    /// # Errors
    /// When our own binary cannot be found.
    pub fn new(program: Option<PathBuf>, jobs: Option<usize>) -> Result<Context, RunError> {
        let program = match program {
            Some(program) => program,
            None => std::env::current_exe()
                .map_err(crate::error::kernel_error("cannot find our own binary"))?,
        };
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Context {
            program,
            stop: Arc::new(AtomicBool::new(false)),
            registry: Registry::open(),
            jobs: jobs.unwrap_or(processors).clamp(1, MAX_JOBS),
            through_unmount: false,
        })
    }

    /// Whether somebody wants the run to end.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Fails when somebody wants the run to end.
    ///
    /// # Errors
    /// [`RunError::Interrupted`].
    pub fn go_on(&self) -> Result<(), RunError> {
        if self.stopped() {
            Err(RunError::Interrupted)
        } else {
            Ok(())
        }
    }
}
