//! The recorded drive in process, for stacks without a file system.

use std::io;
use std::time::{Duration, Instant};

use plugpull_model::seams::Device;
use plugpull_model::units::ByteOffset;

use crate::log::index::Kind;

use super::recorder::Recorder;

/// A block device whose every command is recorded; no kernel, no root.
#[derive(Debug)]
pub struct RecordedDevice<'a> {
    recorder: &'a Recorder,
}

impl<'a> RecordedDevice<'a> {
    /// Over a recorder.
    #[must_use]
    pub fn new(recorder: &'a Recorder) -> RecordedDevice<'a> {
        RecordedDevice { recorder }
    }

    fn command(&self, kind: Kind, offset: u64, length_bytes: u64, data: &[u8]) -> io::Result<()> {
        let service = self.recorder.settings().service;
        let service_us = if kind == Kind::Flush {
            service.flush_us
        } else {
            service.write_us
        };
        let arrived = Instant::now();
        let ticket = self.recorder.submit(kind, offset, length_bytes);
        let due = arrived + Duration::from_micros(u64::from(service_us));
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            std::thread::sleep(left);
        }
        self.recorder
            .complete(ticket, data)
            .map_err(io::Error::from_raw_os_error)
    }
}

impl Device for RecordedDevice<'_> {
    fn size_bytes(&self) -> u64 {
        self.recorder.size_bytes()
    }

    fn read(&self, at: ByteOffset, out: &mut [u8]) -> io::Result<()> {
        self.recorder
            .read(at.0, out)
            .map_err(io::Error::from_raw_os_error)
    }

    fn write(&self, at: ByteOffset, data: &[u8], fua: bool) -> io::Result<()> {
        let kind = if fua { Kind::WriteFua } else { Kind::Write };
        self.command(kind, at.0, data.len() as u64, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.command(Kind::Flush, 0, 0, &[])
    }

    fn discard(&self, at: ByteOffset, length_bytes: u64) -> io::Result<()> {
        self.command(Kind::Discard, at.0, length_bytes, &[])
    }
}
