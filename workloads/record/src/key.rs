//! Which record: the run, and the key from which every byte of the record follows.

use std::fmt;
use std::str::FromStr;

use crate::RecordError;

/// The smallest unit a drive writes whole, and the unit that is stamped.
pub const SECTOR_BYTES: usize = 512;
/// The smallest record: one sector.
pub const MIN_RECORD_BYTES: u32 = 512;
/// The largest record: 1 MiB, 2048 sectors.
pub const MAX_RECORD_BYTES: u32 = 1 << 20;
/// The smallest logical block of a drive.
pub const MIN_LOGICAL_BLOCK_BYTES: u32 = 512;
/// The largest logical block of a drive.
pub const MAX_LOGICAL_BLOCK_BYTES: u32 = 1 << 16;

pub(crate) const SECTOR_LEN: u32 = 512;

/// The identity of one run, printed as 32 hexadecimal digits. It tells this run's bytes from those
/// an earlier run left on the same drive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunId(pub [u8; 16]);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl FromStr for RunId {
    type Err = RecordError;

    fn from_str(text: &str) -> Result<Self, RecordError> {
        let refused = || RecordError::RunId {
            text: text.chars().take(64).collect(),
        };
        // from_str_radix alone would take a sign.
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(refused());
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| refused())?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// Everything that decides the bytes of a record.
///
/// Two keys are *versions of one record* when they share run, stream and address; `version` then
/// says which is older. Their sequence and length may differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecordKey {
    /// The run that writes it.
    pub run: RunId,
    /// The writer inside the run.
    pub stream: u32,
    /// The number of the record in its stream.
    pub sequence: u64,
    /// The how manyeth write of this address by this stream; the first is 1.
    pub version: u32,
    /// Byte offset in the object it is written to, a multiple of 512.
    pub address: u64,
    /// Bytes of the record, a multiple of 512 from [`MIN_RECORD_BYTES`] to [`MAX_RECORD_BYTES`].
    pub length: u32,
}

impl RecordKey {
    /// Checks that a record with this key can exist.
    ///
    /// # Errors
    /// [`RecordError::Length`], [`RecordError::Address`] or [`RecordError::Version`], in that
    /// order.
    pub fn check(&self) -> Result<(), RecordError> {
        let length_bytes = self.length;
        if !(MIN_RECORD_BYTES..=MAX_RECORD_BYTES).contains(&length_bytes)
            || !length_bytes.is_multiple_of(SECTOR_LEN)
        {
            return Err(RecordError::Length { length_bytes });
        }
        let address_bytes = self.address;
        if !address_bytes.is_multiple_of(u64::from(SECTOR_LEN))
            || address_bytes.checked_add(u64::from(length_bytes)).is_none()
        {
            return Err(RecordError::Address {
                address_bytes,
                length_bytes,
            });
        }
        if self.version == 0 {
            return Err(RecordError::Version { address_bytes });
        }
        Ok(())
    }

    /// How many sectors the record has (rounded down for a key that [`check`](Self::check)
    /// refuses).
    pub fn sectors(&self) -> u32 {
        self.length / SECTOR_LEN
    }

    /// Whether both keys are versions of one record: same run, stream and address.
    pub fn same_place(&self, other: &Self) -> bool {
        self.run == other.run && self.stream == other.stream && self.address == other.address
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "stream {} sequence {} version {} at {} ({} bytes) of run {}",
            self.stream, self.sequence, self.version, self.address, self.length, self.run
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RecordKey = RecordKey {
        run: RunId([3; 16]),
        stream: 1,
        sequence: 2,
        version: 1,
        address: 4096,
        length: 1024,
    };

    #[test]
    fn a_run_id_reads_back_as_it_prints() {
        let run = RunId(*b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\xff");
        assert_eq!(run.to_string(), "000102030405060708090a0b0c0d0eff");
        assert_eq!(run.to_string().parse(), Ok(run));
    }

    #[test]
    fn a_run_id_takes_32_digits_and_nothing_else() {
        for text in [
            "",
            "00",
            "+0102030405060708090a0b0c0d0e0ff",
            &"g".repeat(32),
            &"0".repeat(33),
        ] {
            assert!(
                matches!(text.parse::<RunId>(), Err(RecordError::RunId { .. })),
                "{text}"
            );
        }
    }

    #[test]
    fn a_length_off_the_sector_grid_or_out_of_range_is_refused() {
        for length in [0, 511, 513, MAX_RECORD_BYTES + 512, u32::MAX] {
            let refused = RecordKey { length, ..KEY }.check();
            assert_eq!(
                refused,
                Err(RecordError::Length {
                    length_bytes: length
                })
            );
        }
        for length in [MIN_RECORD_BYTES, MAX_RECORD_BYTES] {
            assert_eq!(RecordKey { length, ..KEY }.check(), Ok(()));
        }
    }

    #[test]
    fn an_address_off_the_grid_or_without_room_is_refused() {
        for address in [1, 511, u64::MAX, u64::MAX - 511] {
            let refused = RecordKey { address, ..KEY }.check();
            assert!(
                matches!(refused, Err(RecordError::Address { .. })),
                "{address}"
            );
        }
        let last = RecordKey {
            address: u64::MAX - 2047,
            ..KEY
        };
        assert_eq!(last.check(), Ok(()));
    }

    #[test]
    fn version_zero_is_refused() {
        let refused = RecordKey { version: 0, ..KEY }.check();
        assert_eq!(
            refused,
            Err(RecordError::Version {
                address_bytes: 4096
            })
        );
    }

    #[test]
    fn versions_share_run_stream_and_address_only() {
        let later = RecordKey {
            sequence: 90,
            version: 2,
            length: 512,
            ..KEY
        };
        assert!(KEY.same_place(&later));
        assert!(!KEY.same_place(&RecordKey { stream: 2, ..KEY }));
        assert!(!KEY.same_place(&RecordKey { address: 0, ..KEY }));
        assert!(!KEY.same_place(&RecordKey {
            run: RunId([4; 16]),
            ..KEY
        }));
    }
}
