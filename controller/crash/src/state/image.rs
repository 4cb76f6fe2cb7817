//! Builds crash images in shared memory, at the cost of what differs.

use std::collections::BTreeSet;

use crate::log::reader::Recording;
use crate::serve::memory::{PAGE_BYTES, PageSet, SharedMemory};

use super::content::read_unit;
use super::explorer::DurableChange;
use super::{CrashState, Planted, Source, Unit};

/// A run of changed pages longer than this is put back by holes first.
const LONG_RUN_PAGES: u64 = 32;

/// One worker's image: what the kernel is shown, and what is durable at the
/// cut it stands at, to go back to.
#[derive(Debug)]
pub struct WorkingImage<'a> {
    recording: &'a Recording,
    base: &'a SharedMemory,
    unit_bytes: u64,
    shown: SharedMemory,
    durable: SharedMemory,
    written: PageSet,
    touched: BTreeSet<u64>,
    restores: bool,
}

impl<'a> WorkingImage<'a> {
    /// A copy of the image at `base`.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub fn new(
        recording: &'a Recording,
        base: &'a SharedMemory,
        unit_bytes: u64,
    ) -> std::io::Result<WorkingImage<'a>> {
        let size = base.len_bytes();
        let shown = SharedMemory::new("plugpull-image", size)?;
        let durable = SharedMemory::new("plugpull-durable", size)?;
        base.copy_into(&shown)?;
        base.copy_into(&durable)?;
        Ok(WorkingImage {
            recording,
            base,
            unit_bytes,
            shown,
            durable,
            written: PageSet::new("plugpull-written", size)?,
            touched: BTreeSet::new(),
            restores: true,
        })
    }

    /// For the self-test only: from now on pages are not put back, as a broken
    /// rig would leave them.
    pub fn break_restore(&mut self) {
        self.restores = false;
    }

    /// What is shown to the kernel.
    #[must_use]
    pub fn shown(&self) -> &SharedMemory {
        &self.shown
    }

    /// The pages the kernel wrote.
    #[must_use]
    pub fn written(&self) -> &PageSet {
        &self.written
    }

    /// Shows `state`. `fresh` is what became durable since the state shown
    /// before, in order; cuts have to come in ascending order. Showing the same
    /// again changes nothing.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub fn show(&mut self, fresh: &[DurableChange], state: &CrashState) -> std::io::Result<()> {
        if self.restores {
            self.restore()?;
        }
        for change in fresh {
            self.put(change.unit, change.source, true);
        }
        for (unit, source) in &state.overrides {
            self.put(*unit, *source, false);
        }
        match state.planted {
            None => {}
            Some(Planted::Misplaced { unit, source }) => self.put(unit, source, false),
            Some(Planted::BitFlip { unit, bit }) => {
                let at = unit * self.unit_bytes + bit / 8;
                let mut byte = [0u8];
                if self.shown.read(at, &mut byte) {
                    let _ = self.shown.write(at, &[byte[0] ^ 1 << (bit % 8)]);
                    self.touched.insert(at / PAGE_BYTES);
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, unit: Unit, source: Source, durable: bool) {
        let mut bytes = Vec::new();
        read_unit(
            self.recording,
            self.base,
            self.unit_bytes,
            unit,
            source,
            &mut bytes,
        );
        let offset = unit * self.unit_bytes;
        // In range: the reader checked every command against the device.
        let _ = self.shown.write(offset, &bytes);
        if durable {
            let _ = self.durable.write(offset, &bytes);
        } else {
            self.touched.insert(offset / PAGE_BYTES);
        }
    }

    /// Puts back every page that the last state or the kernel changed. Where
    /// the durable image holds no memory, neither does the shown one afterwards.
    fn restore(&mut self) -> std::io::Result<()> {
        let mut pages = std::mem::take(&mut self.touched);
        self.written.drain(|page| {
            pages.insert(page);
        });
        let mut pages = pages.into_iter().peekable();
        let mut bytes = [0u8; PAGE_BYTES as usize];
        while let Some(first) = pages.next() {
            let mut last = first;
            while pages.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            let start = first * PAGE_BYTES;
            let end = ((last + 1) * PAGE_BYTES).min(self.shown.len_bytes());
            if last - first >= LONG_RUN_PAGES {
                // What the stack was filled with once more: mostly holes again.
                self.shown.punch(start, end - start)?;
                for (from, to) in self.durable.data_ranges_in(start, end)? {
                    self.durable.copy_range(&self.shown, from, to)?;
                }
                continue;
            }
            let mut at = start;
            while at < end {
                let part = &mut bytes[..usize::try_from(end - at)
                    .unwrap_or(usize::MAX)
                    .min(PAGE_BYTES as usize)];
                self.durable.read_sparse(at, part)?;
                let _ = self.shown.write(at, part);
                at += PAGE_BYTES;
            }
        }
        Ok(())
    }
}
