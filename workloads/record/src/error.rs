//! What can be wrong with a key, a buffer, or the bytes of a record.

use thiserror::Error;

/// Why a record could not be encoded, decoded or expected. Each message says what is wrong, where,
/// and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The length in a key is not one a record can have.
    #[error(
        "record length {length_bytes} bytes is not a multiple of 512 between 512 and 1048576; \
         choose a record size in that range"
    )]
    Length {
        /// The refused length.
        length_bytes: u32,
    },

    /// The address in a key is not on a sector, or the record would end beyond 2^64 bytes.
    #[error(
        "record address {address_bytes} is not a multiple of 512 with room for {length_bytes} bytes \
         below 2^64; place records on 512-byte boundaries"
    )]
    Address {
        /// The refused byte offset.
        address_bytes: u64,
        /// The length of the record there.
        length_bytes: u32,
    },

    /// Version 0 does not exist: the first write of an address is version 1.
    #[error("record version 0 at address {address_bytes}; count the writes of an address from 1")]
    Version {
        /// The byte offset of the record.
        address_bytes: u64,
    },

    /// The buffer to encode into has another size than the record.
    #[error(
        "the buffer holds {have_bytes} bytes and the record is {need_bytes}; \
         pass a slice of exactly the record's length"
    )]
    Buffer {
        /// Size of the buffer.
        have_bytes: usize,
        /// Size of the record.
        need_bytes: u32,
    },

    /// A sector was asked for that the record does not have.
    #[error("sector {sector} is outside a record of {sectors} sectors; count sectors from 0")]
    Sector {
        /// The sector asked for.
        sector: u32,
        /// How many the record has.
        sectors: u32,
    },

    /// A logical block size that no supported drive has.
    #[error(
        "logical block size {logical_block_bytes} bytes is not a power of two between 512 and 65536; \
         use the size the drive reports (queue/logical_block_size)"
    )]
    LogicalBlock {
        /// The refused size.
        logical_block_bytes: u32,
    },

    /// A run id that is not 32 hexadecimal digits.
    #[error(
        "run id {text:?} is not 32 hexadecimal digits; copy it as the plan or the report prints it"
    )]
    RunId {
        /// The text, cut to 64 characters.
        text: String,
    },

    /// Fewer bytes than the smallest record.
    #[error(
        "{have_bytes} bytes cannot hold a record, which has at least 512; \
         read the whole record, or use classify to judge a file that ends early"
    )]
    TooFewBytes {
        /// How many bytes there are.
        have_bytes: usize,
    },

    /// The bytes do not begin with the magic of a record.
    #[error(
        "no record begins here: bytes 0..8 are {found:02x?}, not \"PLUGPREC\"; \
         check the offset, or use classify to name what lies there"
    )]
    NotARecord {
        /// The first eight bytes.
        found: [u8; 8],
    },

    /// A record of a format this build does not know.
    #[error(
        "the record header at bytes 52..56 names format {found} and this build reads format 1; \
         verify the image with the plugpull version that wrote it"
    )]
    Format {
        /// The format number found.
        found: u32,
    },

    /// The header does not match its checksum.
    #[error(
        "the record header (bytes 0..60) has CRC32C {computed:08x} and stores {stored:08x} at 60..64: \
         it is damaged; use classify to find which sectors are"
    )]
    HeaderChecksum {
        /// The checksum in the header.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },

    /// The header names another length than the number of bytes given.
    #[error(
        "the header names a record of {length_bytes} bytes and {have_bytes} were given; \
         pass exactly the record's bytes"
    )]
    WrongSize {
        /// How many bytes were given.
        have_bytes: usize,
        /// The length in the header.
        length_bytes: u32,
    },

    /// The payload does not match its checksum.
    #[error(
        "the payload (bytes 64 to the end) has CRC32C {computed:08x}, the header stores {stored:08x}; \
         the first sector that is not this record's is {first_bad_sector}; \
         use classify to tell torn from corrupt"
    )]
    PayloadChecksum {
        /// The checksum in the header.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
        /// The first sector whose bytes are not those the key generates.
        first_bad_sector: u32,
    },
}
