//! Memory that two processes share: a memfd mapped by both.
//!
//! The kernel side of a block device may race with itself (two writes of one
//! sector in flight), so every access is a raw copy and never a reference into
//! the mapping; words are atomics.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// A memfd and its mapping.
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    map: MmapRaw,
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl SharedMemory {
    /// New memory of this size, all zeros and not yet backed by any page.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new(name: &str, length_bytes: u64) -> io::Result<SharedMemory> {
        let fd = memfd_create(name, MFdFlags::MFD_CLOEXEC)?;
        let file = File::from(fd);
        file.set_len(length_bytes)?;
        Self::map(file)
    }

    /// A copy that holds memory only where this one does.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn duplicate(&self, name: &str) -> io::Result<SharedMemory> {
        let copy = SharedMemory::new(name, self.len_bytes())?;
        self.copy_into(&copy)?;
        Ok(copy)
    }

    /// Copies what holds memory here into `to`, which has to hold zeros.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn copy_into(&self, to: &SharedMemory) -> io::Result<()> {
        for (start, end) in self.data_ranges_in(0, self.len_bytes())? {
            self.copy_range(to, start, end)?;
        }
        Ok(())
    }

    /// Copies the bytes `start..end` into the same place of `to`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn copy_range(&self, to: &SharedMemory, start: u64, end: u64) -> io::Result<()> {
        const CHUNK: usize = 64 << 10;
        let mut bytes = vec![0u8; CHUNK];
        let mut at = start;
        while at < end {
            let part = &mut bytes[..usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK)];
            self.read_sparse(at, part)?;
            if !to.write(at, part) {
                return Err(io::Error::from(io::ErrorKind::InvalidInput));
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Maps memory that another process made.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn from_fd(fd: OwnedFd) -> io::Result<SharedMemory> {
        Self::map(File::from(fd))
    }

    fn map(file: File) -> io::Result<SharedMemory> {
        let map = MmapOptions::new().map_raw(&file)?;
        Ok(SharedMemory { file, map })
    }

    /// Its length.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.map.len() as u64
    }

    fn range(&self, offset: u64, length: usize) -> Option<usize> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(length)?;
        (end <= self.map.len()).then_some(start)
    }

    /// Copies out. `false` when the range is not inside.
    #[must_use]
    pub fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        let Some(start) = self.range(offset, out.len()) else {
            return false;
        };
        // SAFETY: the range was checked; `out` is a distinct allocation. The
        // bytes may change meanwhile, as on any device, and any bytes are valid u8.
        unsafe {
            std::ptr::copy_nonoverlapping(self.map.as_ptr().add(start), out.as_mut_ptr(), out.len())
        };
        true
    }

    /// Copies in. `false` when the range is not inside.
    #[must_use]
    pub fn write(&self, offset: u64, data: &[u8]) -> bool {
        let Some(start) = self.range(offset, data.len()) else {
            return false;
        };
        // SAFETY: as in `read`.
        unsafe {
            std::ptr::copy_nonoverlapping(
                data.as_ptr(),
                self.map.as_mut_ptr().add(start),
                data.len(),
            )
        };
        true
    }

    /// Fills a range with one byte. `false` when the range is not inside.
    #[must_use]
    pub fn fill(&self, offset: u64, length_bytes: u64, byte: u8) -> bool {
        let Ok(length) = usize::try_from(length_bytes) else {
            return false;
        };
        let Some(start) = self.range(offset, length) else {
            return false;
        };
        // SAFETY: as in `read`.
        unsafe { std::ptr::write_bytes(self.map.as_mut_ptr().add(start), byte, length) };
        true
    }

    /// Gives the pages of a range back: they read as zeros and hold no memory.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn punch(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length_bytes)) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        // SAFETY: fallocate takes integers and an open descriptor.
        let rc = unsafe {
            libc::fallocate(
                self.file.as_raw_fd(),
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                offset,
                length,
            )
        };
        if rc == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Copies out without giving memory to holes, as a read through the
    /// mapping would.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn read_sparse(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    /// The byte ranges within `start..end` that hold memory, ascending:
    /// everything else is zeros.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn data_ranges_in(&self, start: u64, end: u64) -> io::Result<Vec<(u64, u64)>> {
        let seek = |from: u64, whence: i32| -> io::Result<Option<u64>> {
            let from =
                i64::try_from(from).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            // SAFETY: lseek takes integers and an open descriptor.
            let at = unsafe { libc::lseek(self.file.as_raw_fd(), from, whence) };
            match u64::try_from(at) {
                Ok(at) => Ok(Some(at)),
                Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => {
                    Ok(None)
                }
                Err(_) => Err(io::Error::last_os_error()),
            }
        };
        let mut ranges = Vec::new();
        let mut at = start;
        while at < end {
            let Some(first) = seek(at, libc::SEEK_DATA)?.filter(|first| *first < end) else {
                break;
            };
            let last = seek(first, libc::SEEK_HOLE)?.unwrap_or(end).min(end);
            ranges.push((first, last));
            at = last;
        }
        Ok(ranges)
    }

    /// The `index`-th 8-byte word, as an atomic. `None` beyond the end.
    #[must_use]
    pub fn word(&self, index: usize) -> Option<&AtomicU64> {
        let start = self.range((index as u64).checked_mul(8)?, 8)?;
        // SAFETY: in range, 8-aligned (the map is page-aligned), and every
        // process touches these words only as atomics.
        Some(unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(start).cast::<u64>()) })
    }
}

/// Bytes of one page of the bitmap's device.
pub const PAGE_BYTES: u64 = 4096;

/// A bitmap of device pages in shared memory: which pages the kernel wrote.
#[derive(Debug)]
pub struct PageSet {
    memory: SharedMemory,
}

impl PageSet {
    /// An empty set for a device of this size.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new(name: &str, device_bytes: u64) -> io::Result<PageSet> {
        let words = device_bytes.div_ceil(PAGE_BYTES).div_ceil(64).max(1);
        Ok(PageSet {
            memory: SharedMemory::new(name, words * 8)?,
        })
    }

    /// Maps a set that another process made.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn from_fd(fd: OwnedFd) -> io::Result<PageSet> {
        Ok(PageSet {
            memory: SharedMemory::from_fd(fd)?,
        })
    }

    /// The descriptor, to pass on.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Adds every page that the byte range touches.
    pub fn insert(&self, offset: u64, length_bytes: u64) {
        if length_bytes == 0 {
            return;
        }
        let last = offset.saturating_add(length_bytes - 1) / PAGE_BYTES;
        for page in offset / PAGE_BYTES..=last {
            let Ok(index) = usize::try_from(page / 64) else {
                return;
            };
            let Some(word) = self.memory.word(index) else {
                return;
            };
            let bit = 1u64 << (page % 64);
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Takes every page out of the set, in order.
    pub fn drain(&self, mut each: impl FnMut(u64)) {
        for index in 0.. {
            let Some(word) = self.memory.word(index) else {
                break;
            };
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                each(index as u64 * 64 + u64::from(bits.trailing_zeros()));
                bits &= bits - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_outside_are_refused() {
        let memory = SharedMemory::new("t", 8192).expect("memfd");
        assert!(memory.write(8191, &[1]));
        assert!(!memory.write(8191, &[1, 2]));
        assert!(!memory.read(u64::MAX, &mut [0]));
        assert!(!memory.fill(0, 8193, 0));
    }

    #[test]
    fn a_page_set_gives_back_the_pages_of_every_range() {
        let set = PageSet::new("t", 1 << 20).expect("memfd");
        set.insert(4095, 2);
        set.insert(64 * 4096, 1);
        let mut pages = Vec::new();
        set.drain(|page| pages.push(page));
        assert_eq!(pages, [0, 1, 64]);
        set.drain(|_| panic!("drained twice"));
    }
}
