//! Latencies in bounded memory.

use hdrhistogram::Histogram;
use plugpull_model::event::LatencyNs;

/// Significant digits kept: a percentile is within 0.1 % of the exact one.
const DIGITS: u8 = 3;
/// Latencies above one hour are counted as one hour: no acknowledgement takes it.
const MOST_NS: u64 = 3_600_000_000_000;

/// An HDR histogram of nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyHistogram {
    counts: Histogram<u64>,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        // Both bounds are constants that the library takes.
        let counts = Histogram::new_with_bounds(1, MOST_NS, DIGITS).unwrap_or_else(|_| {
            Histogram::new(DIGITS).unwrap_or_else(|_| unreachable!("3 digits"))
        });
        Self { counts }
    }
}

impl LatencyHistogram {
    /// Counts one latency.
    pub fn record(&mut self, latency_ns: u64) {
        self.counts.saturating_record(latency_ns);
    }

    /// Adds all that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        // Same bounds: nothing of the other is out of range.
        let _ = self.counts.add(&other.counts);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// The latency that so many of a thousand do not exceed; 0 when nothing was counted.
    #[must_use]
    pub fn permille(&self, permille: u32) -> u64 {
        if self.counts.is_empty() {
            return 0;
        }
        self.counts
            .value_at_quantile(f64::from(permille.min(1000)) / 1000.0)
    }

    /// The percentiles that reports print.
    #[must_use]
    pub fn summary(&self) -> LatencyNs {
        LatencyNs {
            p50: self.permille(500),
            p99: self.permille(990),
            p999: self.permille(999),
            max: if self.counts.is_empty() {
                0
            } else {
                self.counts.max()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_thousand_latencies_are_those_of_the_sorted_list() {
        let mut histogram = LatencyHistogram::default();
        for latency in (1..=1000u64).rev() {
            histogram.record(latency * 1000);
        }
        let summary = histogram.summary();
        for (found, exact) in [
            (summary.p50, 500_000),
            (summary.p99, 990_000),
            (summary.p999, 999_000),
            (summary.max, 1_000_000),
        ] {
            assert!(
                found >= exact && found <= exact + exact / 500,
                "{found} for {exact}"
            );
        }
    }

    #[test]
    fn merged_histograms_count_what_both_counted() {
        let mut left = LatencyHistogram::default();
        let mut right = LatencyHistogram::default();
        left.record(10);
        right.record(u64::MAX);
        right.record(20);
        left.merge(&right);
        assert_eq!(left.count(), 3);
        assert_eq!(left.summary().p50, 20);
        assert!(left.summary().max >= MOST_NS);
    }

    #[test]
    fn nothing_counted_is_zero_throughout() {
        assert_eq!(LatencyHistogram::default().summary(), LatencyNs::default());
    }
}
