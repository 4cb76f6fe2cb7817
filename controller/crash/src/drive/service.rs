//! Service times: a command completes some time after it arrived, while others
//! arrive. This is what makes the depth of the queue visible.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::log::index::Kind;
use crate::serve::fuse::{Backend, Done};

use super::awake::Awake;
use super::recorder::{Recorder, Ticket};

struct Waiting {
    ticket: Ticket,
    data: Vec<u8>,
    done: Done,
}

#[derive(Default)]
struct Queue {
    // By due time, then by arrival: equal times complete in arrival order.
    waiting: BTreeMap<(Instant, u64), Waiting>,
    arrivals: u64,
}

/// A recorded drive behind a queue.
pub struct QueuedDrive {
    recorder: Arc<Recorder>,
    write: Duration,
    flush: Duration,
    awake: Awake,
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl QueuedDrive {
    /// Over `recorder`, with the service times of its settings. Where these
    /// are not 0, one thread completes commands when they are due; it lives as
    /// long as the process.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(recorder: Arc<Recorder>) -> std::io::Result<Arc<QueuedDrive>> {
        let service = recorder.settings().service;
        let drive = Arc::new(QueuedDrive {
            recorder,
            write: Duration::from_micros(u64::from(service.write_us)),
            flush: Duration::from_micros(u64::from(service.flush_us)),
            awake: Awake::start()?,
            queue: Mutex::new(Queue::default()),
            changed: Condvar::new(),
        });
        if !drive.write.is_zero() || !drive.flush.is_zero() {
            let completer = Arc::clone(&drive);
            std::thread::Builder::new()
                .name("completer".to_owned())
                .spawn(move || completer.run())?;
        }
        Ok(drive)
    }

    fn arrive(&self, kind: Kind, offset: u64, length_bytes: u64, data: &[u8], done: Done) {
        let service = if kind == Kind::Flush {
            self.flush
        } else {
            self.write
        };
        self.awake.touch();
        let ticket = self.recorder.submit(kind, offset, length_bytes);
        if service.is_zero() {
            done(self.recorder.complete(ticket, data));
            return;
        }
        let waiting = Waiting {
            ticket,
            data: data.to_vec(),
            done,
        };
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (Instant::now() + service, queue.arrivals);
        queue.arrivals += 1;
        let first = queue
            .waiting
            .first_key_value()
            .is_none_or(|(next, _)| key < *next);
        queue.waiting.insert(key, waiting);
        drop(queue);
        if first {
            self.changed.notify_one();
        }
    }

    fn run(&self) {
        // The default slack of 50 us would be several service times long.
        // SAFETY: PR_SET_TIMERSLACK takes integers.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000u64, 0, 0, 0) };
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = Instant::now();
            let due = queue.waiting.first_key_value().map(|((due, _), _)| *due);
            queue = match due {
                None => self
                    .changed
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(due) if due > now => {
                    self.changed
                        .wait_timeout(queue, due - now)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                Some(_) => {
                    let next = queue.waiting.pop_first();
                    drop(queue);
                    if let Some((_, waiting)) = next {
                        (waiting.done)(self.recorder.complete(waiting.ticket, &waiting.data));
                    }
                    self.queue.lock().unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}

impl Backend for QueuedDrive {
    fn size_bytes(&self) -> u64 {
        self.recorder.size_bytes()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), i32> {
        self.recorder.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8], done: Done) {
        self.arrive(Kind::Write, offset, data.len() as u64, data, done);
    }

    fn flush(&self, done: Done) {
        self.arrive(Kind::Flush, 0, 0, &[], done);
    }

    fn discard(&self, offset: u64, length_bytes: u64, done: Done) {
        self.arrive(Kind::Discard, offset, length_bytes, &[], done);
    }

    fn write_zeroes(&self, offset: u64, length_bytes: u64, done: Done) {
        self.arrive(Kind::WriteZeroes, offset, length_bytes, &[], done);
    }
}
