//! Time, as a parameter.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Where outlets take the time from, so that tests can say how it passes.
pub trait Clock {
    /// Nanoseconds on a clock that never goes back.
    fn now_ns(&self) -> u64;

    /// Returns once `time` has passed on this clock.
    fn sleep(&self, time: Duration);
}

impl<C: Clock> Clock for &C {
    fn now_ns(&self) -> u64 {
        (**self).now_ns()
    }

    fn sleep(&self, time: Duration) {
        (**self).sleep(time);
    }
}

/// `CLOCK_MONOTONIC`, whose readings compare with those of every other process of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now_ns(&self) -> u64 {
        // The call fails only for a clock that the kernel lacks, and Linux has always had this one.
        clock_gettime(ClockId::CLOCK_MONOTONIC)
            .map(|time| Duration::from(time).as_nanos() as u64)
            .expect("CLOCK_MONOTONIC can be read")
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_moves_by_at_least_what_was_slept() {
        let before = MonotonicClock.now_ns();
        MonotonicClock.sleep(Duration::from_millis(2));
        assert!(MonotonicClock.now_ns() >= before + 2_000_000);
    }
}
