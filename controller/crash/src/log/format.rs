//! The bytes of a dm-log-writes version 1 log.
//!
//! Little-endian. A super block padded to one log sector; then per entry a
//! 32-byte header padded to one log sector, then its data (none for DISCARD).
//! Source: the kernel's `Documentation/admin-guide/device-mapper/log-writes.rst`
//! and the logs it writes; restated in `controller/crash/LOG.md`.

/// The super block's magic.
pub const MAGIC: u64 = 0x006a_7366_7773_6872;
/// The only version.
pub const VERSION: u64 = 1;
/// Our logs use 512-byte log sectors, whatever the drive's logical block is.
pub const LOG_SECTOR_BYTES: u64 = 512;
/// Bytes of an entry's header before its padding.
pub const ENTRY_HEADER_BYTES: usize = 32;
/// Longest text of a mark in a 512-byte log sector.
pub const MAX_MARK_BYTES: usize = 512 - 33;

/// A FLUSH.
pub const FLAG_FLUSH: u64 = 1;
/// A write with FUA.
pub const FLAG_FUA: u64 = 2;
/// A DISCARD; no data follows.
pub const FLAG_DISCARD: u64 = 4;
/// A mark; its text follows the header in the same log sector.
pub const FLAG_MARK: u64 = 8;
/// Metadata of the file system, as the kernel's bio said.
pub const FLAG_METADATA: u64 = 16;

/// The super block as one log sector.
#[must_use]
pub fn super_block(entries: u64) -> [u8; 512] {
    let mut out = [0u8; 512];
    out[0..8].copy_from_slice(&MAGIC.to_le_bytes());
    out[8..16].copy_from_slice(&VERSION.to_le_bytes());
    out[16..24].copy_from_slice(&entries.to_le_bytes());
    out[24..28].copy_from_slice(&512u32.to_le_bytes());
    out
}

/// An entry's header as one log sector. `mark` is the text of a mark.
#[must_use]
pub fn entry_header(sector: u64, sectors: u64, flags: u64, mark: &str) -> [u8; 512] {
    let mut out = [0u8; 512];
    let text = &mark.as_bytes()[..mark.len().min(MAX_MARK_BYTES)];
    out[0..8].copy_from_slice(&sector.to_le_bytes());
    out[8..16].copy_from_slice(&sectors.to_le_bytes());
    out[16..24].copy_from_slice(&flags.to_le_bytes());
    out[24..32].copy_from_slice(&(text.len() as u64).to_le_bytes());
    out[ENTRY_HEADER_BYTES..ENTRY_HEADER_BYTES + text.len()].copy_from_slice(text);
    out
}

/// One entry's header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// First sector.
    pub sector: u64,
    /// Sectors.
    pub sectors: u64,
    /// Flags.
    pub flags: u64,
    /// Length of the text of a mark.
    pub data_len: u64,
}

/// Decodes an entry's header; any 32 bytes are one.
#[must_use]
pub fn decode_entry(bytes: &[u8; ENTRY_HEADER_BYTES]) -> EntryHeader {
    let word = |at: usize| {
        let mut eight = [0u8; 8];
        eight.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(eight)
    };
    EntryHeader {
        sector: word(0),
        sectors: word(8),
        flags: word(16),
        data_len: word(24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_super_block_is_that_of_the_kernel() {
        // First 28 bytes of a log that Debian's kernel 6.1 wrote, with 0x17e entries.
        let kernel = [
            0x72, 0x68, 0x73, 0x77, 0x66, 0x73, 0x6a, 0x00, 1, 0, 0, 0, 0, 0, 0, 0, 0x7e, 0x01, 0,
            0, 0, 0, 0, 0, 0, 2, 0, 0,
        ];
        assert_eq!(super_block(0x17e)[..28], kernel);
    }

    #[test]
    fn a_header_survives_the_round_trip() {
        let bytes = entry_header(7, 8, FLAG_MARK, "ack-1");
        let mut first = [0u8; ENTRY_HEADER_BYTES];
        first.copy_from_slice(&bytes[..ENTRY_HEADER_BYTES]);
        assert_eq!(
            decode_entry(&first),
            EntryHeader {
                sector: 7,
                sectors: 8,
                flags: FLAG_MARK,
                data_len: 5
            }
        );
        assert_eq!(&bytes[32..37], b"ack-1");
    }
}
