//! The one clock of ledgers.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC` as the kernel counts them, with no origin of our own: the
/// readings of all processes of one machine since its boot compare, those of two machines do not.
/// This is the time in every ledger line.
///
/// The call cannot fail on Linux. Were it to, the answer would be the end of time, which lies
/// inside every loss window: it may weaken a verdict and never makes a finding.
#[must_use]
pub fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .ok()
        .and_then(|time| u64::try_from(Duration::from(time).as_nanos()).ok())
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_counts_nanoseconds_and_never_goes_back() {
        let before = monotonic_ns();
        std::thread::sleep(Duration::from_millis(2));
        let after = monotonic_ns();
        assert!(after >= before + 2_000_000);
        assert!(after < u64::MAX);
    }
}
