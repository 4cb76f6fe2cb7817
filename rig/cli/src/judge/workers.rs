//! Workers that recover crash images in parallel.
//!
//! Jobs are taken in order, so that each worker's cuts ascend; what became
//! durable is a list that only grows and is shared by all.

use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use plugpull_crash::state::explorer::DurableChange;
use plugpull_crash::state::{CrashState, ImageId};
use plugpull_model::plan::PlannedCell;
use plugpull_record::RunId;
use plugpull_verify::{Inspection, inspect};

use super::Observer;

/// Jobs that wait for each worker: enough that none idles.
const WAITING_PER_WORKER: usize = 4;

/// One image to recover.
#[derive(Debug)]
pub struct Job {
    /// How many durable changes there are at its cut.
    pub changes: usize,
    /// The state.
    pub state: CrashState,
    /// Whether to use the stack once more.
    pub deep: bool,
}

/// What came of one image.
#[derive(Debug)]
pub struct Outcome {
    /// The image.
    pub image: ImageId,
    /// What the oracle needs of it, or why there is nothing.
    pub inspection: Result<Inspection, String>,
    /// Whether it was used once more.
    pub deep: bool,
}

/// What workers and the enumerator share.
#[derive(Debug)]
pub struct Shared {
    changes: RwLock<Vec<DurableChange>>,
    jobs: Mutex<Option<Receiver<Job>>>,
}

/// The enumerator's end.
#[derive(Debug)]
pub struct Pool<'scope> {
    shared: &'scope Shared,
    jobs: Option<SyncSender<Job>>,
    outcomes: Receiver<Outcome>,
    threads: Vec<ScopedJoinHandle<'scope, ()>>,
    pending: usize,
}

impl Shared {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Shared {
        Shared {
            changes: RwLock::new(Vec::new()),
            jobs: Mutex::new(None),
        }
    }

    fn next(&self) -> Option<Job> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.as_ref()?.recv().ok()
    }
}

impl Default for Shared {
    fn default() -> Self {
        Shared::new()
    }
}

impl<'scope> Pool<'scope> {
    /// Starts one thread for each observer.
    pub fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        shared: &'scope Shared,
        observers: Vec<Box<dyn Observer + 'scope>>,
        cell: &'scope PlannedCell,
        run: RunId,
    ) -> Pool<'scope> {
        let (jobs, receiver) = sync_channel(WAITING_PER_WORKER * observers.len());
        *shared.jobs.lock().unwrap_or_else(PoisonError::into_inner) = Some(receiver);
        let (sender, outcomes) = channel();
        let threads = observers
            .into_iter()
            .map(|observer| {
                let sender = sender.clone();
                scope.spawn(move || work(shared, observer, cell, run, &sender))
            })
            .collect();
        Pool {
            shared,
            jobs: Some(jobs),
            outcomes,
            threads,
            pending: 0,
        }
    }

    /// Adds what became durable since the last call.
    pub fn extend_changes(&self, all: &[DurableChange]) {
        let mut changes = self
            .shared
            .changes
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let known = changes.len();
        changes.extend_from_slice(&all[known..]);
    }

    /// Hands out a job, and gives back what ended meanwhile through `each`.
    pub fn submit(&mut self, job: Job, mut each: impl FnMut(Outcome)) {
        let Some(jobs) = self.jobs.clone() else {
            return;
        };
        self.pending += 1;
        let mut job = Some(job);
        while let Some(next) = job.take() {
            match jobs.try_send(next) {
                Ok(()) => {}
                Err(TrySendError::Full(back)) => {
                    job = Some(back);
                    match self.outcomes.recv_timeout(Duration::from_millis(100)) {
                        Ok(outcome) => {
                            self.pending -= 1;
                            each(outcome);
                        }
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => job = None,
                    }
                }
                Err(TrySendError::Disconnected(_)) => {}
            }
        }
        while let Ok(outcome) = self.outcomes.try_recv() {
            self.pending -= 1;
            each(outcome);
        }
    }

    /// Waits for all jobs. Returns how many never came back: their worker died.
    pub fn finish(mut self, mut each: impl FnMut(Outcome)) -> usize {
        self.jobs = None;
        while self.pending > 0 {
            match self.outcomes.recv() {
                Ok(outcome) => {
                    self.pending -= 1;
                    each(outcome);
                }
                Err(_) => break,
            }
        }
        for thread in self.threads {
            // A panic of a worker is a bug of the rig; its jobs are counted below.
            let _ = thread.join();
        }
        self.pending
    }
}

fn work(
    shared: &Shared,
    mut observer: Box<dyn Observer + '_>,
    cell: &PlannedCell,
    run: RunId,
    outcomes: &Sender<Outcome>,
) {
    let mut applied = 0;
    while let Some(job) = shared.next() {
        let fresh = {
            // A copy of the tail spares holding the lock through a recovery.
            let changes = shared
                .changes
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            changes[applied..job.changes].to_vec()
        };
        let observation = observer.observe(&fresh, &job.state, job.deep);
        if observation.is_ok() {
            // Else they may not be in its image yet; applying them twice is harmless.
            applied = job.changes;
        }
        let inspection = observation.map(|observation| inspect(cell, run, &observation));
        let outcome = Outcome {
            image: job.state.image,
            inspection,
            deep: job.deep,
        };
        if outcomes.send(outcome).is_err() {
            return;
        }
    }
}
