//! The append-log on a device without a file system.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use plugpull_model::seams::{AckSink, Device, PositionSource};
use plugpull_model::units::ByteOffset;
use plugpull_model::workload::{Acknowledge, PlannedWorkload};
use plugpull_record::RunId;

use crate::GeneratorError;
use crate::engine::{CommitError, Engine, Target, WorkloadSummary};
use crate::layout::{areas, check};

/// Runs every writer of the workload on `device`, and returns when all have ended: as
/// [`run_files`](crate::run_files), with a flush, FUA, or the return of the write as the
/// acknowledgement.
///
/// The writers share the device's cache, and a flush that fails may have lost any write before it.
/// So it also fails the records of other writers that were in flight then, whatever their own flush
/// said.
///
/// # Errors
/// When the workload cannot be written to this device, or a ledger line cannot be kept.
pub fn run_device(
    device: &dyn Device,
    run: RunId,
    workload: &PlannedWorkload,
    positions: &dyn PositionSource,
    sink: &dyn AckSink,
    stop: &AtomicBool,
) -> Result<WorkloadSummary, GeneratorError> {
    check(workload)?;
    let acknowledge = acknowledging(workload.acknowledge)?;
    let end_bytes = areas(workload)
        .iter()
        .map(|area| area.end_bytes)
        .max()
        .unwrap_or(0);
    let device_bytes = device.size_bytes();
    if end_bytes > device_bytes {
        return Err(GeneratorError::DeviceTooSmall {
            end_bytes,
            device_bytes,
        });
    }
    let failed_flushes = AtomicU64::new(0);
    let targets = workload
        .writers
        .iter()
        .map(|_| DeviceTarget {
            device,
            acknowledge,
            failed_flushes: &failed_flushes,
        })
        .collect();
    let engine = Engine {
        run,
        workload,
        positions,
        sink,
        stop,
    };
    engine.run(targets)
}

/// The calls that acknowledge on a device.
#[derive(Clone, Copy)]
enum DeviceCall {
    Write,
    WriteFua,
    WriteThenFlush,
}

fn acknowledging(acknowledge: Acknowledge) -> Result<DeviceCall, GeneratorError> {
    let refused = |acknowledge| {
        Err(GeneratorError::Acknowledge {
            acknowledge,
            stack: "a device without a file system",
            instead: "`flush`, `fua` or `none`",
        })
    };
    match acknowledge {
        Acknowledge::Flush => Ok(DeviceCall::WriteThenFlush),
        Acknowledge::Fua => Ok(DeviceCall::WriteFua),
        Acknowledge::None => Ok(DeviceCall::Write),
        Acknowledge::Fsync => refused("fsync"),
        Acknowledge::Fdatasync => refused("fdatasync"),
        Acknowledge::OSync => refused("o-sync"),
        Acknowledge::ODsync => refused("o-dsync"),
    }
}

struct DeviceTarget<'a> {
    device: &'a dyn Device,
    acknowledge: DeviceCall,
    failed_flushes: &'a AtomicU64,
}

impl Target for DeviceTarget<'_> {
    fn commit(&self, at: u64, record: &[u8]) -> Result<(), CommitError> {
        let at = ByteOffset(at);
        match self.acknowledge {
            DeviceCall::Write => self
                .device
                .write(at, record, false)
                .map_err(|error| failed("write", &error)),
            DeviceCall::WriteFua => self
                .device
                .write(at, record, true)
                .map_err(|error| failed("write with FUA", &error)),
            DeviceCall::WriteThenFlush => self.write_then_flush(at, record),
        }
    }
}

impl DeviceTarget<'_> {
    fn write_then_flush(&self, at: ByteOffset, record: &[u8]) -> Result<(), CommitError> {
        let failed_before = self.failed_flushes.load(Ordering::SeqCst);
        self.device
            .write(at, record, false)
            .map_err(|error| failed("write", &error))?;
        self.device.flush().map_err(|error| {
            self.failed_flushes.fetch_add(1, Ordering::SeqCst);
            failed("flush", &error)
        })?;
        if self.failed_flushes.load(Ordering::SeqCst) == failed_before {
            Ok(())
        } else {
            Err(CommitError {
                call: "flush of another writer meanwhile",
                errno: libc::EIO,
            })
        }
    }
}

fn failed(call: &'static str, error: &io::Error) -> CommitError {
    CommitError {
        call,
        errno: error.raw_os_error().unwrap_or(libc::EIO),
    }
}
