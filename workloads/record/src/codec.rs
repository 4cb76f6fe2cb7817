//! Writing a record and reading one back whole.

use crate::key::{RecordKey, SECTOR_BYTES};
use crate::label::{HEADER_MAGIC, LABEL_BYTES, Label, LabelStem, STAMP_MAGIC};
use crate::payload::{Payload, Sector};
use crate::{RecordError, stamp::STAMP_AT};

/// Writes the record with this key over all of `out`.
///
/// # Errors
/// [`RecordError::Buffer`] unless `out.len()` is the key's length, and what [`RecordKey::check`]
/// refuses. `out` is untouched then.
pub fn encode(key: &RecordKey, out: &mut [u8]) -> Result<(), RecordError> {
    key.check()?;
    let have_bytes = out.len();
    if u32::try_from(have_bytes) != Ok(key.length) {
        return Err(RecordError::Buffer {
            have_bytes,
            need_bytes: key.length,
        });
    }
    let record = Regenerator::new(key);
    for (index, sector) in (0..).zip(out.as_chunks_mut().0) {
        record.fill_body(index, sector);
    }
    let header = record.header(crc32c::crc32c(&out[LABEL_BYTES..]));
    out[..LABEL_BYTES].copy_from_slice(&header);
    Ok(())
}

/// Writes one sector of the record with this key; sectors count from 0.
///
/// Sector 0 holds the checksum of the whole payload, so it costs as much as the record; any other
/// costs one sector.
///
/// # Errors
/// What [`RecordKey::check`] refuses, and [`RecordError::Sector`] beyond the record's end.
pub fn encode_sector(
    key: &RecordKey,
    sector: u32,
    out: &mut [u8; SECTOR_BYTES],
) -> Result<(), RecordError> {
    key.check()?;
    if sector >= key.sectors() {
        return Err(RecordError::Sector {
            sector,
            sectors: key.sectors(),
        });
    }
    Regenerator::new(key).fill(sector, out);
    Ok(())
}

/// Reads a whole record and returns its key, after checking the header and both checksums.
///
/// The checksums are trusted when they are right; the payload is regenerated only to say *where* it
/// is wrong. [`classify`](crate::classify()) never trusts a checksum.
///
/// # Errors
/// One [`RecordError`] for the first check that fails: too few bytes, magic, header checksum,
/// format, key, size, payload checksum.
pub fn decode(bytes: &[u8]) -> Result<RecordKey, RecordError> {
    let have_bytes = bytes.len();
    let (Some(header), true) = (bytes.first_chunk(), have_bytes >= SECTOR_BYTES) else {
        return Err(RecordError::TooFewBytes { have_bytes });
    };
    let Label {
        key,
        detail: stored,
    } = Label::read(HEADER_MAGIC, header)?;
    if u32::try_from(have_bytes) != Ok(key.length) {
        return Err(RecordError::WrongSize {
            have_bytes,
            length_bytes: key.length,
        });
    }
    let computed = crc32c::crc32c(&bytes[LABEL_BYTES..]);
    if stored != computed {
        let mut record = Regenerator::new(&key);
        let first_bad_sector = (0..)
            .zip(bytes.as_chunks().0)
            .find_map(|(index, sector)| (!record.is_exact(index, sector)).then_some(index))
            .unwrap_or(0);
        return Err(RecordError::PayloadChecksum {
            stored,
            computed,
            first_bad_sector,
        });
    }
    Ok(key)
}

/// Makes any sector of one record again, to write it or to compare with it.
pub(crate) struct Regenerator {
    key: RecordKey,
    payload: Payload,
    stamp: LabelStem,
    payload_checksum: Option<u32>,
}

impl Regenerator {
    pub(crate) fn new(key: &RecordKey) -> Self {
        Self {
            key: *key,
            payload: Payload::new(key),
            stamp: LabelStem::new(STAMP_MAGIC, key),
            payload_checksum: None,
        }
    }

    pub(crate) fn key(&self) -> &RecordKey {
        &self.key
    }

    pub(crate) fn payload(&self) -> &Payload {
        &self.payload
    }

    /// Whether all of the bytes, as many as the record has, are the record.
    pub(crate) fn is_whole(&self, bytes: &[u8]) -> bool {
        let (sectors, rest) = bytes.as_chunks::<SECTOR_BYTES>();
        rest.is_empty()
            && u32::try_from(bytes.len()) == Ok(self.key.length)
            && (0..).zip(sectors).all(|(index, sector)| self.has_body(index, sector))
            // The payload is known to be right, so its checksum is the one the header must hold.
            && self.header(crc32c::crc32c(&bytes[LABEL_BYTES..])) == bytes[..LABEL_BYTES]
    }

    /// Whether the bytes are this sector of the record.
    pub(crate) fn is_exact(&mut self, sector: u32, bytes: &Sector) -> bool {
        self.has_body(sector, bytes) && (sector != 0 || self.has_header(bytes))
    }

    pub(crate) fn has_header(&mut self, bytes: &Sector) -> bool {
        let checksum = self.payload_checksum();
        self.header(checksum) == bytes[..LABEL_BYTES]
    }

    pub(crate) fn has_stamp(&self, sector: u32, bytes: &Sector) -> bool {
        self.stamp.finish(sector) == bytes[STAMP_AT..]
    }

    pub(crate) fn fill(&mut self, sector: u32, out: &mut Sector) {
        self.fill_body(sector, out);
        if sector == 0 {
            let checksum = self.payload_checksum();
            out[..LABEL_BYTES].copy_from_slice(&self.header(checksum));
        }
    }

    /// Everything of a sector except the header.
    fn fill_body(&self, sector: u32, out: &mut Sector) {
        self.payload.fill(sector, out);
        out[STAMP_AT..].copy_from_slice(&self.stamp.finish(sector));
    }

    fn has_body(&self, sector: u32, bytes: &Sector) -> bool {
        self.payload.matches(sector, bytes) && self.has_stamp(sector, bytes)
    }

    fn header(&self, payload_checksum: u32) -> [u8; LABEL_BYTES] {
        LabelStem::new(HEADER_MAGIC, &self.key).finish(payload_checksum)
    }

    /// The checksum of the record's payload, made from the key alone, once.
    fn payload_checksum(&mut self) -> u32 {
        if let Some(known) = self.payload_checksum {
            return known;
        }
        let mut sector = [0; SECTOR_BYTES];
        self.fill_body(0, &mut sector);
        let mut checksum = crc32c::crc32c(&sector[LABEL_BYTES..]);
        for index in 1..self.key.sectors() {
            self.fill_body(index, &mut sector);
            checksum = crc32c::crc32c_append(checksum, &sector);
        }
        self.payload_checksum = Some(checksum);
        checksum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunId;

    const KEY: RecordKey = RecordKey {
        run: RunId([1; 16]),
        stream: 2,
        sequence: 3,
        version: 4,
        address: 8192,
        length: 2048,
    };

    fn encoded(key: &RecordKey) -> Vec<u8> {
        let mut bytes = vec![0; key.length as usize];
        encode(key, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_record_decodes_to_the_key_it_was_encoded_from() {
        for length in [512, 1024, 4096, 1 << 20] {
            let key = RecordKey { length, ..KEY };
            assert_eq!(decode(&encoded(&key)), Ok(key));
        }
    }

    #[test]
    fn encoding_ignores_what_the_buffer_held() {
        let mut bytes = vec![0xff; 2048];
        encode(&KEY, &mut bytes).unwrap();
        assert_eq!(bytes, encoded(&KEY));
    }

    #[test]
    fn each_sector_alone_is_the_one_in_the_record() {
        let bytes = encoded(&KEY);
        for (index, sector) in (0..).zip(bytes.as_chunks().0) {
            let mut alone = [0xff; SECTOR_BYTES];
            encode_sector(&KEY, index, &mut alone).unwrap();
            assert_eq!(&alone, sector);
        }
        let beyond = encode_sector(&KEY, 4, &mut [0; SECTOR_BYTES]);
        assert_eq!(
            beyond,
            Err(RecordError::Sector {
                sector: 4,
                sectors: 4
            })
        );
    }

    #[test]
    fn a_buffer_of_another_size_is_refused() {
        for size in [0, 512, 2047, 2049] {
            let refused = encode(&KEY, &mut vec![0; size]);
            assert_eq!(
                refused,
                Err(RecordError::Buffer {
                    have_bytes: size,
                    need_bytes: 2048
                })
            );
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_fails_to_decode() {
        let mut bytes = encoded(&KEY);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_payload_error_says_which_sector() {
        let mut bytes = encoded(&KEY);
        bytes[1030] ^= 1;
        let refused = decode(&bytes);
        assert!(
            matches!(
                refused,
                Err(RecordError::PayloadChecksum {
                    first_bad_sector: 2,
                    ..
                })
            ),
            "{refused:?}"
        );
    }

    #[test]
    fn too_many_or_too_few_bytes_fail_to_decode() {
        let mut bytes = encoded(&KEY);
        assert_eq!(
            decode(&bytes[..511]),
            Err(RecordError::TooFewBytes { have_bytes: 511 })
        );
        let cut = decode(&bytes[..1024]);
        assert_eq!(
            cut,
            Err(RecordError::WrongSize {
                have_bytes: 1024,
                length_bytes: 2048
            })
        );
        bytes.push(0);
        let grown = decode(&bytes);
        assert_eq!(
            grown,
            Err(RecordError::WrongSize {
                have_bytes: 2049,
                length_bytes: 2048
            })
        );
    }

    #[test]
    fn bytes_that_are_no_record_are_called_so() {
        let zeroes = decode(&[0; 512]);
        assert_eq!(zeroes, Err(RecordError::NotARecord { found: [0; 8] }));
    }
}
