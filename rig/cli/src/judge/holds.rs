//! What a piece of a device holds, as far as its bytes tell.

use plugpull_record::{SECTOR_BYTES, find_stamp};

/// The magic of every block that ext4's journal writes about itself, big-endian.
const JBD2_MAGIC: [u8; 4] = 0xC03B_3998u32.to_be_bytes();
/// Where an ext4 superblock begins on its device, and its magic within.
const EXT4_SUPER_BYTES: u64 = 1024;
const EXT4_MAGIC_AT: usize = 56;
const EXT4_MAGIC: [u8; 2] = 0xEF53u16.to_le_bytes();

/// What a piece of a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Sectors of a record.
    Record {
        /// Its stream.
        stream: u32,
        /// Its place in the stream.
        sequence: u64,
    },
    /// A block of ext4's journal about itself.
    Journal(JournalBlock),
    /// The ext4 superblock.
    Superblock,
    /// Nothing but zeros.
    Zeros,
    /// Something else.
    Other,
}

/// The kinds of such a block. Source: the kernel's `include/linux/jbd2.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalBlock {
    /// Lists the blocks that follow it, of this transaction.
    Descriptor(u32),
    /// Commits this transaction.
    Commit(u32),
    /// The journal's own superblock.
    Superblock,
    /// Revokes blocks, in this transaction.
    Revoke(u32),
}

/// Reads what lies at byte `offset` of a device.
#[must_use]
pub fn holds(offset: u64, bytes: &[u8]) -> Holds {
    if let Some(block) = journal_block(bytes) {
        return Holds::Journal(block);
    }
    if let Some(stamp) = bytes.chunks_exact(SECTOR_BYTES).find_map(find_stamp) {
        return Holds::Record {
            stream: stamp.stream,
            sequence: stamp.sequence,
        };
    }
    let magic = EXT4_SUPER_BYTES
        .checked_sub(offset)
        .and_then(|at| usize::try_from(at).ok())
        .and_then(|at| bytes.get(at + EXT4_MAGIC_AT..at + EXT4_MAGIC_AT + 2));
    if magic == Some(&EXT4_MAGIC) {
        return Holds::Superblock;
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return Holds::Zeros;
    }
    Holds::Other
}

fn journal_block(bytes: &[u8]) -> Option<JournalBlock> {
    let word = |at: usize| -> Option<u32> {
        let four = bytes.get(at..at + 4)?;
        Some(u32::from_be_bytes([four[0], four[1], four[2], four[3]]))
    };
    if bytes.get(..4)? != JBD2_MAGIC {
        return None;
    }
    let transaction = word(8)?;
    match word(4)? {
        1 => Some(JournalBlock::Descriptor(transaction)),
        2 => Some(JournalBlock::Commit(transaction)),
        3 | 4 => Some(JournalBlock::Superblock),
        5 => Some(JournalBlock::Revoke(transaction)),
        _ => None,
    }
}

impl Holds {
    /// In words; `None` where there is nothing to tell.
    #[must_use]
    pub fn in_words(&self) -> Option<String> {
        Some(match self {
            Holds::Record { stream, sequence } => format!("record {sequence} of stream {stream}"),
            Holds::Journal(JournalBlock::Descriptor(n)) => {
                format!("the journal's descriptor of transaction {n}")
            }
            Holds::Journal(JournalBlock::Commit(n)) => {
                format!("the journal's commit of transaction {n}")
            }
            Holds::Journal(JournalBlock::Superblock) => "the journal's superblock".to_owned(),
            Holds::Journal(JournalBlock::Revoke(n)) => {
                format!("the journal's revocations of transaction {n}")
            }
            Holds::Superblock => "the superblock".to_owned(),
            Holds::Zeros => "zeros".to_owned(),
            Holds::Other => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_block_is_told_from_a_descriptor() {
        let mut block = vec![0u8; 4096];
        block[..4].copy_from_slice(&JBD2_MAGIC);
        block[7] = 2;
        block[11] = 9;
        assert_eq!(
            holds(1 << 20, &block),
            Holds::Journal(JournalBlock::Commit(9))
        );
        block[7] = 1;
        assert_eq!(
            holds(1 << 20, &block),
            Holds::Journal(JournalBlock::Descriptor(9))
        );
    }

    #[test]
    fn any_bytes_of_any_length_are_something() {
        for length in [0usize, 1, 3, 4, 11, 12, 511, 512, 513, 2000] {
            assert_eq!(holds(0, &vec![0; length]), Holds::Zeros);
            assert_eq!(holds(u64::MAX, &vec![7; length.max(1)]), Holds::Other);
        }
    }
}
