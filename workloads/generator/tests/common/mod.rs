//! What the tests of this package share: plans, fakes, and a small file system that has no path.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use plugpull_generator::{GeneratorError, SharedLedger, WorkloadSummary, run_files};
use plugpull_model::ledger::{Ledger, LedgerLine};
use plugpull_model::observation::{ObservedContent, ObservedObject};
use plugpull_model::seams::{AckSink, Device, PositionSource};
use plugpull_model::units::{ByteOffset, Position, StreamId};
use plugpull_model::workload::{Acknowledge, LogFile, PlannedWorkload, PlannedWriter};
use plugpull_record::{RecordKey, RunId};

pub const RUN: RunId = RunId([0x42; 16]);
pub const RECORD_BYTES: u32 = 4096;

/// A workload as the planner lays it out on a file system.
pub fn on_files(writers: u32, records: u32, acknowledge: Acknowledge) -> PlannedWorkload {
    let writers = (0..writers)
        .map(|stream| PlannedWriter {
            stream: StreamId(stream),
            object: format!("log-{stream}"),
            first_address: ByteOffset(0),
            records,
        })
        .collect();
    PlannedWorkload {
        record_bytes: RECORD_BYTES,
        writers,
        file: LogFile::Growing,
        acknowledge,
        direct: false,
        pause_us: 0,
    }
}

/// A workload as the planner lays it out on a device.
pub fn on_device(writers: u32, records: u32, acknowledge: Acknowledge) -> PlannedWorkload {
    let mut workload = on_files(writers, records, acknowledge);
    for writer in &mut workload.writers {
        let first = u64::from(writer.stream.0) * u64::from(records) * u64::from(RECORD_BYTES);
        writer.object = "device".to_owned();
        writer.first_address = ByteOffset(first);
    }
    workload
}

pub fn open(directory: &Path) -> OwnedFd {
    File::open(directory)
        .expect("the temporary directory")
        .into()
}

/// Counts its own readings.
#[derive(Default)]
pub struct Counter(pub AtomicU64);

impl PositionSource for Counter {
    fn position(&self) -> Position {
        Position(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

/// Keeps the lines as they came.
#[derive(Default)]
pub struct Lines(pub Mutex<Vec<LedgerLine>>);

impl AckSink for Lines {
    fn record(&self, line: LedgerLine) -> io::Result<()> {
        self.0.lock().expect("the lines").push(line);
        Ok(())
    }
}

/// Refuses the n-th line and every later one.
pub struct Refuses {
    pub from: u64,
    pub taken: AtomicU64,
}

impl AckSink for Refuses {
    fn record(&self, _: LedgerLine) -> io::Result<()> {
        if self.taken.fetch_add(1, Ordering::SeqCst) < self.from {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        }
    }
}

/// Runs a workload on files, and folds its ledger.
pub fn run_on_files(
    root: &OwnedFd,
    workload: &PlannedWorkload,
) -> Result<(WorkloadSummary, Ledger), GeneratorError> {
    let sink = SharedLedger::in_memory();
    let positions = Counter::default();
    let stop = AtomicBool::new(false);
    let summary = run_files(root.as_fd(), RUN, workload, &positions, &sink, &stop)?;
    sink.finish(positions.position())?;
    Ok((summary, sink.into_ledger()?))
}

/// The bytes of an object that could be read.
pub fn bytes_of<'a>(objects: &'a [ObservedObject], name: &str) -> &'a [u8] {
    let object = objects
        .iter()
        .find(|object| object.name == name)
        .expect("the object");
    match &object.content {
        ObservedContent::Bytes(bytes) => bytes,
        other => panic!("{name}: {other:?}"),
    }
}

/// Whether every planned record lies whole where it was planned.
pub fn holds_every_record(workload: &PlannedWorkload, objects: &[ObservedObject]) -> bool {
    workload.writers.iter().all(|writer| {
        let bytes = bytes_of(objects, &writer.object);
        workload.writes(writer).all(|write| {
            let start = write.address.0 as usize;
            let expected = RecordKey {
                run: RUN,
                stream: write.stream.0,
                sequence: write.sequence.0,
                version: write.version,
                address: write.address.0,
                length: write.length_bytes,
            };
            plugpull_record::decode(&bytes[start..start + write.length_bytes as usize])
                == Ok(expected)
        })
    })
}

/// A device in memory that counts its commands, and fails those it is told to.
pub struct FakeDevice {
    bytes: Mutex<Vec<u8>>,
    /// Submissions and completions so far: what a drive would publish.
    events: AtomicU64,
    log: Mutex<BTreeMap<u64, &'static str>>,
    /// The n-th flush (from 0) and how it fails.
    pub failing_flush: Option<(u64, i32)>,
    flushes: AtomicU64,
    /// Reads that touch this byte fail with EIO.
    pub bad_byte: Option<u64>,
    /// Every write fails with EIO.
    pub writes_fail: bool,
}

impl FakeDevice {
    pub fn new(size_bytes: usize) -> Self {
        Self {
            bytes: Mutex::new(vec![0; size_bytes]),
            events: AtomicU64::new(0),
            log: Mutex::default(),
            failing_flush: None,
            flushes: AtomicU64::new(0),
            bad_byte: None,
            writes_fail: false,
        }
    }

    /// The commands in the order of their submission.
    pub fn commands(&self) -> Vec<&'static str> {
        self.log
            .lock()
            .expect("the log")
            .values()
            .copied()
            .collect()
    }

    fn submit(&self, command: &'static str) {
        let event = self.events.fetch_add(1, Ordering::SeqCst);
        self.log.lock().expect("the log").insert(event, command);
    }

    fn complete(&self) {
        self.events.fetch_add(1, Ordering::SeqCst);
    }
}

impl PositionSource for FakeDevice {
    fn position(&self) -> Position {
        Position(self.events.load(Ordering::SeqCst))
    }
}

impl Device for FakeDevice {
    fn size_bytes(&self) -> u64 {
        self.bytes.lock().expect("the bytes").len() as u64
    }

    fn read(&self, at: ByteOffset, out: &mut [u8]) -> io::Result<()> {
        let start = at.0 as usize;
        if let Some(bad) = self.bad_byte
            && (at.0..at.0 + out.len() as u64).contains(&bad)
        {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        out.copy_from_slice(&self.bytes.lock().expect("the bytes")[start..start + out.len()]);
        Ok(())
    }

    fn write(&self, at: ByteOffset, data: &[u8], fua: bool) -> io::Result<()> {
        self.submit(if fua { "write-fua" } else { "write" });
        let start = at.0 as usize;
        if self.writes_fail {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.bytes.lock().expect("the bytes")[start..start + data.len()].copy_from_slice(data);
        self.complete();
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.submit("flush");
        let number = self.flushes.fetch_add(1, Ordering::SeqCst);
        if let Some((failing, errno)) = self.failing_flush
            && number == failing
        {
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.complete();
        Ok(())
    }

    fn discard(&self, _: ByteOffset, _: u64) -> io::Result<()> {
        self.submit("discard");
        self.complete();
        Ok(())
    }
}

/// A tmpfs of this size that is mounted nowhere: only a descriptor that cannot be synced, as the
/// runner gives it. `None`, with the reason printed, where this user may not make one.
pub fn detached_tmpfs(size: &CStr) -> Option<OwnedFd> {
    let made = try_detached_tmpfs(size);
    match made {
        Ok(root) => Some(root),
        Err(error) => {
            println!("skipped: no detached tmpfs (needs CAP_SYS_ADMIN): {error}");
            None
        }
    }
}

fn try_detached_tmpfs(size: &CStr) -> io::Result<OwnedFd> {
    const FSCONFIG_SET_STRING: libc::c_uint = 1;
    const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
    const NOTHING: *const libc::c_char = std::ptr::null();
    let descriptor = |returned: libc::c_long| {
        if returned < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us, and nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(returned as i32) })
    };
    // SAFETY: fsopen reads a string that outlives the call, and returns a descriptor.
    let context = descriptor(unsafe { libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), 0) })?;
    let context_fd = std::os::fd::AsRawFd::as_raw_fd(&context);
    for (command, key, value) in [
        (FSCONFIG_SET_STRING, c"size".as_ptr(), size.as_ptr()),
        (FSCONFIG_CMD_CREATE, NOTHING, NOTHING),
    ] {
        // SAFETY: fsconfig reads strings that outlive the call, or none.
        let done = unsafe { libc::syscall(libc::SYS_fsconfig, context_fd, command, key, value, 0) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: fsmount takes no pointer, and returns a descriptor.
    descriptor(unsafe { libc::syscall(libc::SYS_fsmount, context_fd, 0, 0) })
}
