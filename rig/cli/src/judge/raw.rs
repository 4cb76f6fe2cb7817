//! Stacks without a file system: the crash image is read as it is.

use std::io;

use plugpull_crash::log::reader::Recording;
use plugpull_crash::serve::memory::SharedMemory;
use plugpull_crash::state::CrashState;
use plugpull_crash::state::explorer::DurableChange;
use plugpull_crash::state::image::WorkingImage;
use plugpull_generator::{read_device, recover};
use plugpull_model::observation::{Observation, RecoveryOutcome};
use plugpull_model::plan::PlannedCell;
use plugpull_model::seams::Device;
use plugpull_model::units::ByteOffset;
use plugpull_record::RunId;

use super::Observer;

/// Looks at images in memory.
#[derive(Debug)]
pub struct RawObserver<'a> {
    cell: &'a PlannedCell,
    run: RunId,
    image: WorkingImage<'a>,
}

impl<'a> RawObserver<'a> {
    /// For one cell's recording.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub fn new(
        cell: &'a PlannedCell,
        run: RunId,
        recording: &'a Recording,
        base: &'a SharedMemory,
        unit_bytes: u64,
    ) -> io::Result<RawObserver<'a>> {
        Ok(RawObserver {
            cell,
            run,
            image: WorkingImage::new(recording, base, unit_bytes)?,
        })
    }
}

impl RawObserver<'_> {
    /// For the self-test only, see [`WorkingImage::break_restore`].
    pub fn break_restore(&mut self) {
        self.image.break_restore();
    }
}

/// A crash image as a device that is only read.
struct ReadOnly<'a>(&'a SharedMemory);

impl Device for ReadOnly<'_> {
    fn size_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
    fn read(&self, at: ByteOffset, out: &mut [u8]) -> io::Result<()> {
        if self.0.read(at.0, out) {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::EIO))
        }
    }
    fn write(&self, _at: ByteOffset, _data: &[u8], _fua: bool) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EROFS))
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn discard(&self, _at: ByteOffset, _length_bytes: u64) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EROFS))
    }
}

impl Observer for RawObserver<'_> {
    fn observe(
        &mut self,
        fresh: &[DurableChange],
        state: &CrashState,
        _deep: bool,
    ) -> Result<Observation, String> {
        self.image
            .show(fresh, state)
            .map_err(|e| format!("cannot build a crash image: {e}"))?;
        let objects = read_device(&ReadOnly(self.image.shown()), &self.cell.workload);
        let recovered = recover(self.run, &self.cell.workload, &objects);
        Ok(Observation {
            recovery: RecoveryOutcome::Recovered,
            messages: Vec::new(),
            kernel_faults: Vec::new(),
            objects,
            recovered,
            used: None,
        })
    }
}
