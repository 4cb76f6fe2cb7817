//! The append-log on a device without a file system.

mod common;

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{Counter, FakeDevice, RECORD_BYTES, RUN, holds_every_record, on_device};
use plugpull_generator::{
    GeneratorError, SharedLedger, WorkloadSummary, read_device, recover, run_device,
};
use plugpull_model::ledger::{Ledger, LedgerLine};
use plugpull_model::observation::ObservedContent;
use plugpull_model::seams::{AckSink, Device, PositionSource};
use plugpull_model::units::ByteOffset;
use plugpull_model::workload::{Acknowledge, PlannedWorkload};

const MIB: usize = 1 << 20;

fn run(
    device: &FakeDevice,
    workload: &PlannedWorkload,
) -> Result<(WorkloadSummary, Ledger), GeneratorError> {
    let sink = SharedLedger::in_memory();
    let summary = run_device(
        device,
        RUN,
        workload,
        device,
        &sink,
        &AtomicBool::new(false),
    )?;
    sink.finish(device.position())?;
    Ok((summary, sink.into_ledger()?))
}

#[test]
fn each_acknowledgement_is_made_of_its_own_commands() {
    for (acknowledge, commands) in [
        (Acknowledge::Flush, vec!["write", "flush", "write", "flush"]),
        (Acknowledge::Fua, vec!["write-fua", "write-fua"]),
        (Acknowledge::None, vec!["write", "write"]),
    ] {
        let device = FakeDevice::new(MIB);
        let workload = on_device(1, 2, acknowledge);
        let (summary, _) = run(&device, &workload).unwrap();
        assert_eq!(summary.acknowledged, 2);
        assert_eq!(device.commands(), commands);
    }
}

#[test]
fn several_writers_leave_every_planned_record() {
    let device = FakeDevice::new(MIB);
    let workload = on_device(4, 50, Acknowledge::Flush);
    let (summary, ledger) = run(&device, &workload).unwrap();
    assert_eq!((summary.issued, summary.acknowledged), (200, 200));
    assert_eq!(ledger.acknowledged(), 200);
    let objects = read_device(&device, &workload);
    assert_eq!(objects.len(), 1);
    assert_eq!(objects[0].name, "device");
    assert!(holds_every_record(&workload, &objects));
    assert_eq!(recover(RUN, &workload, &objects).records.len(), 200);
}

#[test]
fn the_position_of_an_issue_precedes_the_write_and_that_of_the_acknowledgement_follows_the_flush() {
    let device = FakeDevice::new(MIB);
    let (_, ledger) = run(&device, &on_device(1, 10, Acknowledge::Flush)).unwrap();
    // Four events for each record: two submissions, two completions.
    for (id, state) in ledger.iter() {
        assert_eq!(state.issued_at.0, id.sequence.0 * 4);
        assert_eq!(state.acknowledged.unwrap().at.0, id.sequence.0 * 4 + 4);
    }
    assert!(ledger.is_complete_to(device.position()));
}

#[test]
fn a_flush_that_fails_acknowledges_nothing_then_or_later() {
    let mut device = FakeDevice::new(MIB);
    device.failing_flush = Some((3, libc::ENODATA));
    let (summary, ledger) = run(&device, &on_device(1, 10, Acknowledge::Flush)).unwrap();
    assert_eq!(
        (summary.issued, summary.acknowledged, summary.failed),
        (4, 3, 1)
    );
    assert_eq!(ledger.acknowledged(), 3);
    let (id, state) = ledger.iter().last().unwrap();
    assert_eq!(id.sequence.0, 3);
    assert!(state.failed && state.acknowledged.is_none());
    let error = summary.first_error.unwrap();
    assert!(
        error.contains("stream 0, record 3 at byte 12288 of `device`: flush: "),
        "{error}"
    );
}

/// Two writers are in flight together; the first flush fails, and the second succeeds only after
/// that failure is in the ledger.
struct SharedCache {
    both_written: Barrier,
    flushes: AtomicU64,
    failure_kept: AtomicBool,
}

impl Device for SharedCache {
    fn size_bytes(&self) -> u64 {
        MIB as u64
    }
    fn read(&self, _: ByteOffset, _: &mut [u8]) -> io::Result<()> {
        Ok(())
    }
    fn write(&self, _: ByteOffset, _: &[u8], _: bool) -> io::Result<()> {
        self.both_written.wait();
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        if self.flushes.fetch_add(1, Ordering::SeqCst) == 0 {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        while !self.failure_kept.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Ok(())
    }
    fn discard(&self, _: ByteOffset, _: u64) -> io::Result<()> {
        Ok(())
    }
}

impl AckSink for SharedCache {
    fn record(&self, line: LedgerLine) -> io::Result<()> {
        if matches!(line, LedgerLine::Failed { .. }) {
            self.failure_kept.store(true, Ordering::SeqCst);
        }
        Ok(())
    }
}

#[test]
fn a_flush_that_fails_fails_the_records_of_other_writers_in_flight() {
    let device = SharedCache {
        both_written: Barrier::new(2),
        flushes: AtomicU64::new(0),
        failure_kept: AtomicBool::new(false),
    };
    let workload = on_device(2, 10, Acknowledge::Flush);
    let stop = AtomicBool::new(false);
    let positions = Counter::default();
    let summary = run_device(&device, RUN, &workload, &positions, &device, &stop).unwrap();
    assert_eq!(
        (summary.issued, summary.acknowledged, summary.failed),
        (2, 0, 2)
    );
}

#[test]
fn a_seam_that_panics_stops_every_writer_and_voids_the_trial() {
    struct Panics;
    impl AckSink for Panics {
        fn record(&self, line: LedgerLine) -> io::Result<()> {
            if let LedgerLine::Acknowledged { operation, .. } = line
                && operation.stream.0 == 1
            {
                panic!("planted");
            }
            Ok(())
        }
    }
    let device = FakeDevice::new(16 * MIB);
    let mut workload = on_device(2, 1000, Acknowledge::Flush);
    workload.pause_us = 20_000;
    let stop = AtomicBool::new(false);
    let error = run_device(&device, RUN, &workload, &device, &Panics, &stop).unwrap_err();
    assert!(
        matches!(error, GeneratorError::Crashed { stream: 1 }),
        "{error}"
    );
    assert!(device.commands().len() < 1000);
}

#[test]
fn a_write_that_fails_is_not_flushed() {
    let mut device = FakeDevice::new(MIB);
    device.writes_fail = true;
    let (summary, _) = run(&device, &on_device(2, 10, Acknowledge::Flush)).unwrap();
    assert_eq!(
        (summary.issued, summary.acknowledged, summary.failed),
        (2, 0, 2)
    );
    assert_eq!(device.commands(), ["write", "write"]);
}

#[test]
fn a_device_that_is_too_small_or_has_no_such_call_is_refused_before_any_command() {
    let device = FakeDevice::new(MIB);
    let refused = run(&device, &on_device(1, 257, Acknowledge::Flush)).unwrap_err();
    assert!(
        matches!(refused, GeneratorError::DeviceTooSmall { .. }),
        "{refused}"
    );
    for acknowledge in [
        Acknowledge::Fsync,
        Acknowledge::Fdatasync,
        Acknowledge::OSync,
        Acknowledge::ODsync,
    ] {
        let refused = run(&device, &on_device(1, 1, acknowledge)).unwrap_err();
        assert!(
            matches!(refused, GeneratorError::Acknowledge { .. }),
            "{refused}"
        );
    }
    assert!(device.commands().is_empty());
}

#[test]
fn an_unreadable_record_keeps_what_lies_before_it() {
    let mut device = FakeDevice::new(4 * MIB);
    let workload = on_device(2, 400, Acknowledge::None);
    run(&device, &workload).unwrap();
    device.bad_byte = Some(300 * u64::from(RECORD_BYTES) + 77);
    let objects = read_device(&device, &workload);
    let ObservedContent::Unreadable { before, errno } = &objects[0].content else {
        panic!("{:?}", objects[0].content);
    };
    assert_eq!(*errno, libc::EIO);
    assert_eq!(before.len(), 300 * RECORD_BYTES as usize);
    let recovered = recover(RUN, &workload, &objects);
    assert_eq!(recovered.records.len(), 300);
    assert!(
        recovered.notes[0].contains("reading failed"),
        "{:?}",
        recovered.notes
    );
}

#[test]
fn a_device_that_ends_within_the_area_is_read_to_its_end() {
    let device = FakeDevice::new(MIB);
    let mut workload = on_device(1, 10, Acknowledge::None);
    workload.writers[0].first_address = ByteOffset(MIB as u64 - 4096);
    let objects = read_device(&device, &workload);
    assert_eq!(objects[0].content, ObservedContent::Bytes(vec![0; MIB]));
}
