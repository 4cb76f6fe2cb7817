//! The label: the 64 bytes that name a record. The header is a label that ends in the payload
//! checksum, the stamp of a sector is one that ends in the sector's index.

use crate::{RecordError, RecordKey, RunId};

/// The format this build writes, and the only one it reads.
pub const FORMAT_VERSION: u32 = 1;

pub(crate) const LABEL_BYTES: usize = 64;
pub(crate) const HEADER_MAGIC: [u8; 8] = *b"PLUGPREC";
pub(crate) const STAMP_MAGIC: [u8; 8] = *b"PLUGPSEC";

const RUN: usize = 8;
const SEQUENCE: usize = 24;
const ADDRESS: usize = 32;
const STREAM: usize = 40;
const VERSION: usize = 44;
const LENGTH: usize = 48;
const FORMAT: usize = 52;
const DETAIL: usize = 56;
const CHECKSUM: usize = 60;

/// All of a label except its last eight bytes, with the checksum so far: the stamps of one record
/// differ only there, and writing one costs a checksum over four bytes.
#[derive(Clone, Copy)]
pub(crate) struct LabelStem {
    bytes: [u8; LABEL_BYTES],
    checksum: u32,
}

impl LabelStem {
    pub(crate) fn new(magic: [u8; 8], key: &RecordKey) -> Self {
        let mut bytes = [0; LABEL_BYTES];
        bytes[..RUN].copy_from_slice(&magic);
        bytes[RUN..SEQUENCE].copy_from_slice(&key.run.0);
        bytes[SEQUENCE..ADDRESS].copy_from_slice(&key.sequence.to_le_bytes());
        bytes[ADDRESS..STREAM].copy_from_slice(&key.address.to_le_bytes());
        bytes[STREAM..VERSION].copy_from_slice(&key.stream.to_le_bytes());
        bytes[VERSION..LENGTH].copy_from_slice(&key.version.to_le_bytes());
        bytes[LENGTH..FORMAT].copy_from_slice(&key.length.to_le_bytes());
        bytes[FORMAT..DETAIL].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..DETAIL]);
        Self { bytes, checksum }
    }

    pub(crate) fn finish(&self, detail: u32) -> [u8; LABEL_BYTES] {
        let mut bytes = self.bytes;
        let detail = detail.to_le_bytes();
        let checksum = crc32c::crc32c_append(self.checksum, &detail);
        bytes[DETAIL..CHECKSUM].copy_from_slice(&detail);
        bytes[CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// What a label says: the key, and the payload checksum or sector index that follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) key: RecordKey,
    pub(crate) detail: u32,
}

impl Label {
    /// Reads a label; the key it returns has passed [`RecordKey::check`].
    pub(crate) fn read(magic: [u8; 8], bytes: &[u8; LABEL_BYTES]) -> Result<Self, RecordError> {
        let found = array_at::<8>(bytes, 0);
        if found != magic {
            return Err(RecordError::NotARecord { found });
        }
        let stored = u32_at(bytes, CHECKSUM);
        let computed = crc32c::crc32c(&bytes[..CHECKSUM]);
        if stored != computed {
            return Err(RecordError::HeaderChecksum { stored, computed });
        }
        let format = u32_at(bytes, FORMAT);
        if format != FORMAT_VERSION {
            return Err(RecordError::Format { found: format });
        }
        let key = RecordKey {
            run: RunId(array_at(bytes, RUN)),
            stream: u32_at(bytes, STREAM),
            sequence: u64_at(bytes, SEQUENCE),
            version: u32_at(bytes, VERSION),
            address: u64_at(bytes, ADDRESS),
            length: u32_at(bytes, LENGTH),
        };
        key.check()?;
        Ok(Self {
            key,
            detail: u32_at(bytes, DETAIL),
        })
    }
}

// The offsets are constants of this module and lie inside the label.
fn array_at<const N: usize>(bytes: &[u8; LABEL_BYTES], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn u32_at(bytes: &[u8; LABEL_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8; LABEL_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RecordKey = RecordKey {
        run: RunId([0xaa; 16]),
        stream: 0x0102_0304,
        sequence: 0x1112_1314_1516_1718,
        version: 0x2122_2324,
        address: 0x3132_3334_3536_3800,
        length: 0x0000_1000,
    };

    fn resealed(mut bytes: [u8; LABEL_BYTES]) -> [u8; LABEL_BYTES] {
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM]);
        bytes[CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn a_label_reads_back() {
        let bytes = LabelStem::new(HEADER_MAGIC, &KEY).finish(77);
        assert_eq!(
            Label::read(HEADER_MAGIC, &bytes),
            Ok(Label {
                key: KEY,
                detail: 77
            })
        );
    }

    #[test]
    fn a_label_lies_in_memory_as_the_table_says() {
        let bytes = LabelStem::new(STAMP_MAGIC, &KEY).finish(0x4142_4344);
        let mut table = Vec::new();
        table.extend_from_slice(b"PLUGPSEC");
        table.extend_from_slice(&[0xaa; 16]);
        table.extend_from_slice(&[0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
        table.extend_from_slice(&[0x00, 0x38, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31]);
        table.extend_from_slice(&[0x04, 0x03, 0x02, 0x01, 0x24, 0x23, 0x22, 0x21]);
        table.extend_from_slice(&[0x00, 0x10, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00]);
        table.extend_from_slice(&[0x44, 0x43, 0x42, 0x41]);
        let checksum = crc32c::crc32c(&table);
        table.extend_from_slice(&checksum.to_le_bytes());
        assert_eq!(bytes.as_slice(), table);
    }

    #[test]
    fn every_flipped_bit_of_a_label_is_noticed() {
        let good = LabelStem::new(HEADER_MAGIC, &KEY).finish(5);
        for bit in 0..LABEL_BYTES * 8 {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Label::read(HEADER_MAGIC, &bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_later_format_is_named_and_not_guessed_at() {
        let mut bytes = LabelStem::new(HEADER_MAGIC, &KEY).finish(5);
        bytes[FORMAT] = 2;
        let read = Label::read(HEADER_MAGIC, &resealed(bytes));
        assert_eq!(read, Err(RecordError::Format { found: 2 }));
    }

    #[test]
    fn a_checksummed_label_with_an_impossible_key_is_refused() {
        let impossible = RecordKey {
            length: u32::MAX,
            ..KEY
        };
        let bytes = LabelStem::new(HEADER_MAGIC, &impossible).finish(5);
        let read = Label::read(HEADER_MAGIC, &bytes);
        assert_eq!(
            read,
            Err(RecordError::Length {
                length_bytes: u32::MAX
            })
        );
    }
}
