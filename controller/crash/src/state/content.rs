//! The content of units, and the terms that make up an [`ImageId`](super::ImageId).

use std::collections::HashMap;

use crate::log::reader::Recording;
use crate::serve::memory::SharedMemory;

use super::{Source, Unit};

/// Looks up unit contents and caches their digests.
#[derive(Debug)]
pub struct Contents<'a> {
    recording: &'a Recording,
    base: &'a SharedMemory,
    unit_bytes: u64,
    // Keyed access only, never iterated: the order of a HashMap cannot show.
    terms: HashMap<(Unit, Source), u128>,
}

impl<'a> Contents<'a> {
    /// Contents of `recording` over the image at `base`.
    #[must_use]
    pub fn new(recording: &'a Recording, base: &'a SharedMemory, unit_bytes: u64) -> Contents<'a> {
        Contents {
            recording,
            base,
            unit_bytes,
            terms: HashMap::new(),
        }
    }

    /// Bytes of one unit.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        self.unit_bytes
    }

    /// Copies the content of `unit` out of `source`.
    pub fn read(&self, unit: Unit, source: Source, out: &mut Vec<u8>) {
        read_unit(
            self.recording,
            self.base,
            self.unit_bytes,
            unit,
            source,
            out,
        );
    }

    /// The term of `unit` holding `source` in an image id: 0 when that is what
    /// the image at `base` holds.
    pub fn term(&mut self, unit: Unit, source: Source) -> u128 {
        if source == Source::Base {
            return 0;
        }
        if let Some(term) = self.terms.get(&(unit, source)) {
            return *term;
        }
        let (mut ours, mut base) = (Vec::new(), Vec::new());
        self.read(unit, source, &mut ours);
        self.read(unit, Source::Base, &mut base);
        let term = if ours == base {
            0
        } else {
            let mut hasher = blake3::Hasher::new();
            hasher.update(&unit.to_le_bytes());
            hasher.update(&ours);
            let mut half = [0u8; 16];
            half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
            u128::from_le_bytes(half)
        };
        self.terms.insert((unit, source), term);
        term
    }
}

/// Copies the content of `unit` out of `source`.
pub fn read_unit(
    recording: &Recording,
    base: &SharedMemory,
    unit_bytes: u64,
    unit: Unit,
    source: Source,
    out: &mut Vec<u8>,
) {
    out.clear();
    let length = usize::try_from(unit_bytes).unwrap_or(0);
    match source {
        Source::Base => {
            out.resize(length, 0);
            // Every unit of a checked recording lies on the device.
            let _ = base.read(unit * unit_bytes, out);
        }
        Source::Log(at) => {
            out.resize(length, 0);
            recording.read(at, out);
        }
        Source::Fill(byte) => out.resize(length, byte),
    }
}
