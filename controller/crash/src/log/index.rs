//! The side-car of a write log: one entry per log entry, with what
//! dm-log-writes has no room for (submission and completion positions, times,
//! WRITE ZEROES, failed commands).

use crate::serve::fuse::MAX_WRITE_BYTES;

/// First eight bytes of a side-car.
pub const MAGIC: [u8; 8] = *b"PLUGIDX\x01";
/// Bytes of the header and of each entry.
pub const ENTRY_BYTES: usize = 64;
/// Largest length one command can have: bounds what a reader trusts. WRITE
/// ZEROES and DISCARD may span a whole device.
pub const MAX_COMMAND_BYTES: u64 = 64 << 30;
/// Largest length of a command that carries data.
pub const MAX_DATA_BYTES: u64 = 2 * MAX_WRITE_BYTES as u64;

/// The kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// WRITE.
    Write,
    /// WRITE with FUA.
    WriteFua,
    /// WRITE ZEROES.
    WriteZeroes,
    /// DISCARD.
    Discard,
    /// FLUSH.
    Flush,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 5] = [
        Kind::Write,
        Kind::WriteFua,
        Kind::WriteZeroes,
        Kind::Discard,
        Kind::Flush,
    ];

    /// As reports spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Write => "write",
            Kind::WriteFua => "write-fua",
            Kind::WriteZeroes => "write-zeroes",
            Kind::Discard => "discard",
            Kind::Flush => "flush",
        }
    }

    fn code(self) -> u8 {
        match self {
            Kind::Write => 1,
            Kind::WriteFua => 2,
            Kind::WriteZeroes => 3,
            Kind::Discard => 4,
            Kind::Flush => 5,
        }
    }
}

/// One command of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its kind.
    pub kind: Kind,
    /// First byte on the device.
    pub offset_bytes: u64,
    /// Length in bytes; 0 for FLUSH.
    pub length_bytes: u64,
    /// The event number of its submission.
    pub submitted: u64,
    /// The event number of its completion.
    pub completed: u64,
    /// Byte offset of its data in the log file; 0 when it has none.
    pub data_at: u64,
    /// Monotonic time of its completion.
    pub completed_ns: u64,
    /// The error it failed with: such a command did nothing. 0 = success.
    pub errno: u16,
}

/// Encodes one entry.
#[must_use]
pub fn encode(command: &Command) -> [u8; ENTRY_BYTES] {
    let mut out = [0u8; ENTRY_BYTES];
    out[0] = command.kind.code();
    out[2..4].copy_from_slice(&command.errno.to_le_bytes());
    let words = [
        command.offset_bytes,
        command.length_bytes,
        command.submitted,
        command.completed,
        command.data_at,
        command.completed_ns,
    ];
    for (index, word) in words.iter().enumerate() {
        out[8 + index * 8..16 + index * 8].copy_from_slice(&word.to_le_bytes());
    }
    let check = checksum(&out[..56]);
    out[56..64].copy_from_slice(&check.to_le_bytes());
    out
}

/// First eight bytes of the BLAKE3 hash, as a number.
fn checksum(bytes: &[u8]) -> u64 {
    let mut eight = [0u8; 8];
    eight.copy_from_slice(&blake3::hash(bytes).as_bytes()[..8]);
    u64::from_le_bytes(eight)
}

fn word(bytes: &[u8; ENTRY_BYTES], at: usize) -> u64 {
    let mut eight = [0u8; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

/// Decodes one entry.
///
/// # Errors
/// What is wrong with it.
pub fn decode(bytes: &[u8; ENTRY_BYTES]) -> Result<Command, String> {
    if word(bytes, 56) != checksum(&bytes[..56]) {
        return Err("its checksum is wrong".to_owned());
    }
    let kind = Kind::ALL
        .into_iter()
        .find(|kind| kind.code() == bytes[0])
        .ok_or_else(|| format!("kind {} is not known", bytes[0]))?;
    let command = Command {
        kind,
        offset_bytes: word(bytes, 8),
        length_bytes: word(bytes, 16),
        submitted: word(bytes, 24),
        completed: word(bytes, 32),
        data_at: word(bytes, 40),
        completed_ns: word(bytes, 48),
        errno: u16::from_le_bytes([bytes[2], bytes[3]]),
    };
    if command.completed <= command.submitted {
        return Err("it completed before it was submitted".to_owned());
    }
    let most = match kind {
        Kind::Write | Kind::WriteFua => MAX_DATA_BYTES,
        Kind::WriteZeroes | Kind::Discard => MAX_COMMAND_BYTES,
        Kind::Flush => 0,
    };
    if command.length_bytes > most {
        return Err(format!(
            "{} bytes is longer than a {} can be",
            command.length_bytes,
            kind.name()
        ));
    }
    Ok(command)
}

/// What the side-car says of the whole recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexHeader {
    /// Number of entries.
    pub entries: u64,
    /// Size of the device.
    pub device_bytes: u64,
    /// Position of the `base` mark.
    pub base: u64,
    /// Most commands in flight at once.
    pub max_depth: u32,
}

/// Encodes the header.
#[must_use]
pub fn encode_header(header: &IndexHeader) -> [u8; ENTRY_BYTES] {
    let mut out = [0u8; ENTRY_BYTES];
    out[..8].copy_from_slice(&MAGIC);
    out[8..16].copy_from_slice(&header.entries.to_le_bytes());
    out[16..24].copy_from_slice(&header.device_bytes.to_le_bytes());
    out[24..32].copy_from_slice(&header.base.to_le_bytes());
    out[32..36].copy_from_slice(&header.max_depth.to_le_bytes());
    let check = checksum(&out[..56]);
    out[56..64].copy_from_slice(&check.to_le_bytes());
    out
}

/// Decodes the header.
///
/// # Errors
/// What is wrong with it.
pub fn decode_header(bytes: &[u8; ENTRY_BYTES]) -> Result<IndexHeader, String> {
    if bytes[..8] != MAGIC {
        return Err("it does not begin with the side-car's magic".to_owned());
    }
    if word(bytes, 56) != checksum(&bytes[..56]) {
        return Err("the header's checksum is wrong".to_owned());
    }
    let mut depth = [0u8; 4];
    depth.copy_from_slice(&bytes[32..36]);
    Ok(IndexHeader {
        entries: word(bytes, 8),
        device_bytes: word(bytes, 16),
        base: word(bytes, 24),
        max_depth: u32::from_le_bytes(depth),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        Command {
            kind: Kind::Write,
            offset_bytes: 8192,
            length_bytes: 4096,
            submitted: 3,
            completed: 5,
            data_at: 1024,
            completed_ns: 77,
            errno: 0,
        }
    }

    #[test]
    fn an_entry_survives_the_round_trip() {
        assert_eq!(decode(&encode(&command())), Ok(command()));
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let good = encode(&command());
        for bit in 0..ENTRY_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).is_err(), "bit {bit}");
        }
    }
}
