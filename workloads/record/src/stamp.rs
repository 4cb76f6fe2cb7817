//! The stamp of a sector: who wrote it, read without knowing anything else.

use std::fmt;

use crate::key::SECTOR_BYTES;
use crate::label::{LABEL_BYTES, Label, STAMP_MAGIC};
use crate::payload::Sector;
use crate::{RecordKey, RunId};

pub(crate) const STAMP_AT: usize = SECTOR_BYTES - LABEL_BYTES;

/// What the last 64 bytes of a sector say about it: the whole key of its record, and its place
/// there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SectorStamp {
    /// The run that wrote it.
    pub run: RunId,
    /// The writer inside the run.
    pub stream: u32,
    /// The number of the record in its stream.
    pub sequence: u64,
    /// The version of the record.
    pub version: u32,
    /// Byte offset of the *record* in its object.
    pub address: u64,
    /// Bytes of the record.
    pub length: u32,
    /// Which sector of the record this is, from 0.
    pub sector: u32,
}

impl SectorStamp {
    /// The key of the record that the sector is part of.
    pub fn key(&self) -> RecordKey {
        RecordKey {
            run: self.run,
            stream: self.stream,
            sequence: self.sequence,
            version: self.version,
            address: self.address,
            length: self.length,
        }
    }
}

impl fmt::Display for SectorStamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sector {} of {}", self.sector, self.key())
    }
}

/// Reads the stamp of a sector of any run: of the first 512 bytes given, of which only the last 64
/// are looked at. `None` when there are fewer bytes, or no stamp of this format with a right
/// checksum and a possible key.
///
/// A stamp says what the sector claims to be. Whether its payload bears that out takes
/// [`encode_sector`](crate::encode_sector) and a comparison, or [`classify`](crate::classify()).
pub fn find_stamp(sector: &[u8]) -> Option<SectorStamp> {
    stamp_of(sector.first_chunk()?)
}

pub(crate) fn stamp_of(bytes: &Sector) -> Option<SectorStamp> {
    let label = Label::read(STAMP_MAGIC, bytes.last_chunk()?).ok()?;
    let key = label.key;
    (label.detail < key.sectors()).then_some(SectorStamp {
        run: key.run,
        stream: key.stream,
        sequence: key.sequence,
        version: key.version,
        address: key.address,
        length: key.length,
        sector: label.detail,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode;
    use crate::label::LabelStem;

    const KEY: RecordKey = RecordKey {
        run: RunId([9; 16]),
        stream: 4,
        sequence: 5,
        version: 6,
        address: 1024,
        length: 1536,
    };

    #[test]
    fn every_sector_of_a_record_names_it() {
        let mut bytes = vec![0; 1536];
        encode(&KEY, &mut bytes).unwrap();
        for (sector, chunk) in (0..).zip(bytes.chunks(512)) {
            let stamp = find_stamp(chunk).unwrap();
            assert_eq!((stamp.key(), stamp.sector), (KEY, sector));
        }
    }

    #[test]
    fn bytes_beyond_the_first_sector_are_not_looked_at() {
        let mut bytes = vec![0; 1536];
        encode(&KEY, &mut bytes).unwrap();
        assert_eq!(find_stamp(&bytes).map(|stamp| stamp.sector), Some(0));
    }

    #[test]
    fn too_few_bytes_or_no_stamp_is_none() {
        let mut bytes = vec![0; 1536];
        encode(&KEY, &mut bytes).unwrap();
        assert_eq!(find_stamp(&bytes[..511]), None);
        assert_eq!(find_stamp(&[]), None);
        assert_eq!(find_stamp(&[0; 512]), None);
        assert_eq!(find_stamp(&[0xff; 512]), None);
    }

    #[test]
    fn a_stamp_beyond_the_end_of_its_record_is_none() {
        let mut bytes = [0; 512];
        bytes[STAMP_AT..].copy_from_slice(&LabelStem::new(STAMP_MAGIC, &KEY).finish(3));
        assert_eq!(find_stamp(&bytes), None);
    }
}
