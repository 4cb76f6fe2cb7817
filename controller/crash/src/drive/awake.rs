//! Keeps a processor awake while a drive is busy.
//!
//! A command passes through three threads, and waking one on a processor that
//! has gone idle costs more than the command itself, above all in a virtual
//! machine. Drives answer faster than that, so for a moment after each command
//! a thread of the lowest class (`SCHED_IDLE`) spins: it keeps one processor
//! from going idle and gives way to anything else that wants to run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;

use super::recorder::monotonic_ns;

/// How long after a command the next one is waited for.
const AWAKE_NS: u64 = 200_000;
/// Spins between two looks at the clock.
const SPINS: u32 = 64;

#[derive(Debug, Default)]
struct State {
    last_ns: AtomicU64,
    asleep: AtomicBool,
}

/// The spinning thread's handle.
#[derive(Debug)]
pub struct Awake {
    state: Arc<State>,
    thread: Thread,
}

impl Awake {
    /// Starts the thread, asleep. It lives as long as the process.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start() -> std::io::Result<Awake> {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new()
            .name("awake".to_owned())
            .spawn(move || run(&shared))?
            .thread()
            .clone();
        Ok(Awake { state, thread })
    }

    /// A command arrived.
    pub fn touch(&self) {
        self.state.last_ns.store(monotonic_ns(), Ordering::Relaxed);
        if self.state.asleep.swap(false, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }
}

fn run(state: &State) {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter outlives the call; 0 is this thread.
    let lowest = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) };
    if lowest != 0 {
        // Without the lowest class spinning would take time from others.
        return;
    }
    loop {
        let since = monotonic_ns().saturating_sub(state.last_ns.load(Ordering::Relaxed));
        if since > AWAKE_NS {
            state.asleep.store(true, Ordering::Release);
            std::thread::park();
            continue;
        }
        for _ in 0..SPINS {
            std::hint::spin_loop();
        }
    }
}
