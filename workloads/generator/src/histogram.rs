//! Latencies in bounded memory.

use plugpull_model::event::LatencyNs;

/// Each power of two is divided into so many buckets.
const PARTS: usize = 64;
const PART_BITS: u32 = PARTS.ilog2();
/// The values below [`PARTS`] one by one, then the powers of two from there to 2^63.
const BUCKETS: usize = PARTS + (u64::BITS - PART_BITS) as usize * PARTS;

/// Counts of nanoseconds in buckets that grow with the value: 30 KiB whatever is counted. A
/// percentile is at most one part in 64 (1.6 %) above the exact one and never below; the largest
/// value is exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyHistogram {
    buckets: Vec<u64>,
    count: u64,
    max_ns: u64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            count: 0,
            max_ns: 0,
        }
    }
}

impl LatencyHistogram {
    /// Counts one latency.
    pub fn record(&mut self, latency_ns: u64) {
        self.buckets[bucket(latency_ns)] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(latency_ns);
    }

    /// Adds all that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The latency that so many of a thousand do not exceed; 0 when nothing was counted.
    #[must_use]
    pub fn permille(&self, permille: u32) -> u64 {
        let rank = (u128::from(self.count) * u128::from(permille.min(1000))).div_ceil(1000);
        let mut seen = 0u128;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += u128::from(*count);
            if *count > 0 && seen >= rank {
                return highest(index).min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// The percentiles that reports print.
    #[must_use]
    pub fn summary(&self) -> LatencyNs {
        LatencyNs {
            p50: self.permille(500),
            p99: self.permille(990),
            p999: self.permille(999),
            max: self.max_ns,
        }
    }
}

fn bucket(value: u64) -> usize {
    let shift = value.max(1).ilog2().saturating_sub(PART_BITS);
    // Below 2 * PARTS, so it fits; from PARTS on as soon as shift is not 0.
    let part = usize::try_from(value >> shift).unwrap_or(0);
    shift as usize * PARTS + part
}

/// The highest value of a bucket.
fn highest(bucket: usize) -> u64 {
    if bucket < 2 * PARTS {
        return bucket as u64;
    }
    let shift = bucket / PARTS - 1;
    let part = (bucket - shift * PARTS) as u64;
    (part << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_a_bucket_that_ends_at_most_a_64th_above_it() {
        let mut values: Vec<u64> = (0..100_000).collect();
        for power in 0..u64::BITS {
            let value = 1u64 << power;
            values.extend([value - 1, value, value + value / 3, value + (value - 1)]);
        }
        for value in values {
            let index = bucket(value);
            assert!(index < BUCKETS, "{value}");
            let high = highest(index);
            assert!(high >= value, "{value} is above its bucket's end {high}");
            assert!(high - value <= value / 64, "{value} and {high}");
            assert!(index == 0 || highest(index - 1) < value, "{value}");
        }
    }

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
        ] {
            assert!(
                found >= exact && found <= exact + exact / 64,
                "{found} for {exact}"
            );
        }
        assert_eq!(summary.max, 1_000_000);
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
        assert_eq!(left.summary().max, u64::MAX);
    }

    #[test]
    fn nothing_counted_is_zero_throughout() {
        assert_eq!(LatencyHistogram::default().summary(), LatencyNs::default());
    }
}
