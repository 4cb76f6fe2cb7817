//! The content of units, and the terms that make up an [`ImageId`](super::ImageId).

use std::collections::HashMap;

use crate::log::reader::Recording;
use crate::serve::memory::SharedMemory;

use super::{Source, Unit};

/// Terms that are remembered at once; more are forgotten and made anew, so that
/// a long log does not fill the memory.
const MAX_TERMS: usize = 1 << 18;

/// Looks up unit contents and caches their digests.
#[derive(Debug)]
pub struct Contents<'a> {
    recording: &'a Recording,
    base: &'a SharedMemory,
    unit_bytes: u64,
    // Keyed access only, never iterated: the order of a HashMap cannot show.
    digests: HashMap<(Unit, Source), u128>,
    bytes: Vec<u8>,
}

impl<'a> Contents<'a> {
    /// Contents of `recording` over the image at `base`.
    #[must_use]
    pub fn new(recording: &'a Recording, base: &'a SharedMemory, unit_bytes: u64) -> Contents<'a> {
        Contents {
            recording,
            base,
            unit_bytes,
            digests: HashMap::new(),
            bytes: Vec::new(),
        }
    }

    /// Bytes of one unit.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        self.unit_bytes
    }

    /// The term of `unit` holding `source` in an image id: 0 when that is what
    /// the image at `base` holds.
    pub fn term(&mut self, unit: Unit, source: Source) -> u128 {
        if source == Source::Base {
            return 0;
        }
        self.digest(unit, source)
            .wrapping_sub(self.digest(unit, Source::Base))
    }

    fn digest(&mut self, unit: Unit, source: Source) -> u128 {
        if let Some(digest) = self.digests.get(&(unit, source)) {
            return *digest;
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        read_unit(
            self.recording,
            self.base,
            self.unit_bytes,
            unit,
            source,
            &mut bytes,
        );
        let digest = unit_digest(unit, &bytes);
        self.bytes = bytes;
        if self.digests.len() >= MAX_TERMS {
            self.digests.clear();
        }
        self.digests.insert((unit, source), digest);
        digest
    }
}

/// The digest of a unit's number and content: image ids are sums of
/// differences of these.
#[must_use]
pub fn unit_digest(unit: Unit, content: &[u8]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&unit.to_le_bytes());
    hasher.update(content);
    let mut half = [0u8; 16];
    half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    u128::from_le_bytes(half)
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
