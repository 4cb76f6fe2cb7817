//! A buffer that `O_DIRECT` takes.

use std::ops::{Deref, DerefMut};

/// The largest logical block of the drives that can be described, and the page size: no file
/// system asks for more.
const ALIGNMENT_BYTES: usize = 4096;

/// Zeroed bytes of a fixed length that begin on a multiple of [`ALIGNMENT_BYTES`].
pub(crate) struct AlignedBuffer {
    // Longer than asked for by one alignment, and never resized: a vector's heap block stays where
    // it is when the vector moves.
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    pub(crate) fn new(length: usize) -> Self {
        let bytes = vec![0; length + ALIGNMENT_BYTES];
        let start = (bytes.as_ptr() as usize).wrapping_neg() % ALIGNMENT_BYTES;
        Self {
            bytes,
            start,
            length,
        }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_stays_so_when_it_moves() {
        let mut moved = Vec::new();
        for length in [512, 4096, 5000, 1 << 20] {
            let buffer = AlignedBuffer::new(length);
            assert_eq!(buffer.len(), length);
            moved.push(buffer);
        }
        for mut buffer in moved {
            buffer[0] = 1;
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT_BYTES, 0);
        }
    }
}
