//! The server of crash images: shared memory behind a FUSE file, and a note of
//! every page that the kernel writes to it.
//!
//! The runner builds an image in the memory before it attaches the device and
//! puts the noted pages back afterwards, so that a crash image costs what
//! changed and not the size of the device. The server knows nothing of states.

use super::fuse::{Backend, Done};
use super::memory::{PageSet, SharedMemory};

/// Serves one image.
#[derive(Debug)]
pub struct ImageBackend {
    image: SharedMemory,
    written: PageSet,
}

impl ImageBackend {
    /// Over memory that the runner made.
    #[must_use]
    pub fn new(image: SharedMemory, written: PageSet) -> ImageBackend {
        ImageBackend { image, written }
    }
}

fn outcome(inside: bool) -> Result<(), i32> {
    if inside { Ok(()) } else { Err(libc::EIO) }
}

impl Backend for ImageBackend {
    fn size_bytes(&self) -> u64 {
        self.image.len_bytes()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), i32> {
        outcome(self.image.read(offset, out))
    }

    fn write(&self, offset: u64, data: &[u8], done: Done) {
        // Noted before it is done: a server killed in between leaves a page
        // noted too many, never one too few.
        self.written.insert(offset, data.len() as u64);
        done(outcome(self.image.write(offset, data)));
    }

    fn flush(&self, done: Done) {
        done(Ok(()));
    }

    fn discard(&self, offset: u64, length_bytes: u64, done: Done) {
        self.write_zeroes(offset, length_bytes, done);
    }

    fn write_zeroes(&self, offset: u64, length_bytes: u64, done: Done) {
        self.written.insert(offset, length_bytes);
        done(outcome(self.image.fill(offset, length_bytes, 0)));
    }
}
