//! The record: a self-describing write that can be recognised, whole or in pieces, on any crash
//! image.
//!
//! Every byte of every 512-byte sector of a record is a pure function of its [`RecordKey`], and
//! every sector carries a checksummed stamp with that whole key. So any sector found anywhere can
//! be named ([`find_stamp`]) and then verified alone, by regenerating it. The byte tables and the
//! payload algorithm are in `FORMAT.md`, beside this package's manifest.
//!
//! | to | call |
//! |---|---|
//! | write a record, or one sector of it | [`encode`], [`encode_sector`] |
//! | read a record that ought to be whole | [`decode`] |
//! | name what lies where a record should be | [`classify`], which answers with one [`Class`] |
//! | see the evidence sector by sector | [`sector_states`] |
//! | recognise a sector in a raw write log | [`find_stamp`] |
//!
//! The package knows nothing of runs, faults or file systems, and does no I/O.
//!
//! ```
//! use plugpull_record::{Class, Expected, RecordKey, RunId, classify, encode};
//!
//! let key = RecordKey {
//!     run: RunId([7; 16]),
//!     stream: 0,
//!     sequence: 12,
//!     version: 1,
//!     address: 49_152,
//!     length: 4096,
//! };
//! let mut bytes = vec![0; 4096];
//! encode(&key, &mut bytes)?;
//! let expected = Expected::new(key, 512)?;
//! assert_eq!(classify(&bytes, &expected), Class::Intact);
//!
//! bytes[1024..].fill(0); assert!(matches!(classify(&bytes, &expected), Class::Torn { own_sectors:
//! 2, first_bad_sector: 2, .. }));
//! # Ok::<(), plugpull_record::RecordError>(())
//! ```

mod class;
mod classify;
mod codec;
mod error;
mod expected;
mod key;
mod label;
mod payload;
mod sector;
mod stamp;

pub use class::Class;
pub use classify::{classify, sector_states};
pub use codec::{decode, encode, encode_sector};
pub use error::RecordError;
pub use expected::Expected;
pub use key::{
    MAX_LOGICAL_BLOCK_BYTES, MAX_RECORD_BYTES, MIN_LOGICAL_BLOCK_BYTES, MIN_RECORD_BYTES,
    RecordKey, RunId, SECTOR_BYTES,
};
pub use label::FORMAT_VERSION;
pub use sector::{SectorMix, SectorState};
pub use stamp::{SectorStamp, find_stamp};
