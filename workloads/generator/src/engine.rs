//! The writers: one thread each, and the order of position, line, write and acknowledgement.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use plugpull_model::ledger::LedgerLine;
use plugpull_model::seams::{AckSink, PositionSource};
use plugpull_model::workload::{PlannedWorkload, PlannedWrite, PlannedWriter};
use plugpull_record::{RunId, encode};

use crate::aligned::AlignedBuffer;
use crate::layout::{key_of, operation_of};
use crate::{GeneratorError, LatencyHistogram, monotonic_ns};

/// A pause is slept in pieces of at most this, so that `stop` is heard.
const LONGEST_SLEEP: Duration = Duration::from_millis(5);

/// What the writers did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadSummary {
    /// Records whose write was called.
    pub issued: u64,
    /// Records whose acknowledging call returned success.
    pub acknowledged: u64,
    /// Records whose write or sync failed: at most one for each writer.
    pub failed: u64,
    /// The first failure in time: writer, record, call and the system's words.
    pub first_error: Option<String>,
    /// From right before the write to right after the acknowledgement, of acknowledged records.
    pub latencies: LatencyHistogram,
}

/// What one writer writes to.
pub(crate) trait Target: Send {
    /// Writes the record and makes the acknowledging call.
    fn commit(&self, at: u64, record: &[u8]) -> Result<(), CommitError>;
}

/// The call that failed, and how.
pub(crate) struct CommitError {
    pub(crate) call: &'static str,
    pub(crate) errno: i32,
}

/// Everything that the writers share.
pub(crate) struct Engine<'a> {
    pub(crate) run: RunId,
    pub(crate) workload: &'a PlannedWorkload,
    pub(crate) positions: &'a dyn PositionSource,
    pub(crate) sink: &'a dyn AckSink,
    pub(crate) stop: &'a AtomicBool,
}

/// How the writers hear of each other.
#[derive(Default)]
struct Common {
    /// Held for writing until every writer was started.
    start: RwLock<()>,
    /// Writers that run: the first of them wait until all do, so that even a
    /// short workload has several commands in flight.
    running: AtomicUsize,
    abort: AtomicBool,
    first_error: Mutex<Option<String>>,
}

/// Stops the other writers when this one ends by an error or a panic.
struct AbortOthers<'a>(&'a AtomicBool);

impl Drop for AbortOthers<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Engine<'_> {
    /// Runs one writer on each target, in the order of the plan. The workload has been checked.
    pub(crate) fn run<T: Target>(self, targets: Vec<T>) -> Result<WorkloadSummary, GeneratorError> {
        let common = Common::default();
        let engine = &self;
        let shared = &common;
        let ends: Vec<Result<WorkloadSummary, GeneratorError>> = thread::scope(|scope| {
            let hold = shared.start.write().unwrap_or_else(PoisonError::into_inner);
            let threads: Vec<_> = self
                .workload
                .writers
                .iter()
                .zip(targets)
                .map(|(writer, target)| {
                    let started = thread::Builder::new()
                        .name(format!("writer-{}", writer.stream))
                        .spawn_scoped(scope, move || engine.write_all(writer, &target, shared));
                    if started.is_err() {
                        shared.abort.store(true, Ordering::Relaxed);
                    }
                    (writer.stream.0, started)
                })
                .collect();
            drop(hold);
            threads
                .into_iter()
                .map(|(stream, started)| {
                    started
                        .map_err(|source| GeneratorError::Thread { stream, source })?
                        .join()
                        .unwrap_or(Err(GeneratorError::Crashed { stream }))
                })
                .collect()
        });
        let mut summary = WorkloadSummary::default();
        for end in ends {
            let writer = end?;
            summary.issued += writer.issued;
            summary.acknowledged += writer.acknowledged;
            summary.failed += writer.failed;
            summary.latencies.merge(&writer.latencies);
        }
        summary.first_error = common
            .first_error
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        Ok(summary)
    }

    fn write_all<T: Target>(
        &self,
        writer: &PlannedWriter,
        target: &T,
        common: &Common,
    ) -> Result<WorkloadSummary, GeneratorError> {
        let guard = AbortOthers(&common.abort);
        let summary = self.write_until_failure(writer, target, common)?;
        std::mem::forget(guard);
        Ok(summary)
    }

    fn write_until_failure<T: Target>(
        &self,
        writer: &PlannedWriter,
        target: &T,
        common: &Common,
    ) -> Result<WorkloadSummary, GeneratorError> {
        let mut summary = WorkloadSummary::default();
        let mut buffer = AlignedBuffer::new(self.workload.record_bytes as usize);
        let pause = Duration::from_micros(u64::from(self.workload.pause_us));
        drop(common.start.read());
        common.running.fetch_add(1, Ordering::Relaxed);
        while common.running.load(Ordering::Relaxed) < self.workload.writers.len()
            && !common.abort.load(Ordering::Relaxed)
            && !self.stop.load(Ordering::Relaxed)
        {
            thread::sleep(Duration::from_micros(20));
        }
        let mut idle_since = Instant::now();
        for write in self.workload.writes(writer) {
            encode(&key_of(self.run, &write), &mut buffer).map_err(|source| {
                GeneratorError::Record {
                    stream: writer.stream.0,
                    source,
                }
            })?;
            if !self.pause(idle_since, pause, common) {
                break;
            }
            let failure = self.issue(&write, &buffer, target, &mut summary)?;
            if let Some(failure) = failure {
                common
                    .first_error
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_or_insert_with(|| describe(writer, &write, &failure));
                break;
            }
            idle_since = Instant::now();
        }
        Ok(summary)
    }

    /// One record. The position of the issue is read before the write is called, the position of
    /// the acknowledgement after the call returned; between the two readings lies nothing but the
    /// issued line (a push into memory) and the calls themselves.
    fn issue<T: Target>(
        &self,
        write: &PlannedWrite,
        record: &[u8],
        target: &T,
        summary: &mut WorkloadSummary,
    ) -> Result<Option<CommitError>, GeneratorError> {
        let operation = operation_of(write);
        let keep = |line| {
            self.sink
                .record(line)
                .map_err(|source| GeneratorError::Ledger { source })
        };
        let at = self.positions.position();
        keep(LedgerLine::Issued {
            operation,
            at,
            time_ns: monotonic_ns(),
        })?;
        summary.issued += 1;

        let before = Instant::now();
        let outcome = target.commit(write.address.0, record);
        let latency = before.elapsed();
        let at = self.positions.position();
        let time_ns = monotonic_ns();

        match outcome {
            Ok(()) => {
                let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
                keep(LedgerLine::Acknowledged {
                    operation,
                    at,
                    time_ns,
                    latency_ns,
                })?;
                summary.acknowledged += 1;
                summary.latencies.record(latency_ns);
                Ok(None)
            }
            Err(failure) => {
                keep(LedgerLine::Failed {
                    operation,
                    at,
                    time_ns,
                    errno: failure.errno,
                })?;
                summary.failed += 1;
                Ok(Some(failure))
            }
        }
    }

    /// Waits until the pause is over, and says whether to go on.
    fn pause(&self, since: Instant, pause: Duration, common: &Common) -> bool {
        loop {
            if self.stop.load(Ordering::Relaxed) || common.abort.load(Ordering::Relaxed) {
                return false;
            }
            let left = pause.saturating_sub(since.elapsed());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(LONGEST_SLEEP));
        }
    }
}

fn describe(writer: &PlannedWriter, write: &PlannedWrite, failure: &CommitError) -> String {
    format!(
        "stream {}, record {} at byte {} of `{}`: {}: {}",
        writer.stream,
        write.sequence,
        write.address,
        writer.object,
        failure.call,
        std::io::Error::from_raw_os_error(failure.errno)
    )
}
