//! A clock that moves only when it is told to.

use crate::Clock;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

#[derive(Clone, Default)]
pub(crate) struct FakeClock(Rc<Cell<u64>>);

impl Clock for FakeClock {
    fn now_ns(&self) -> u64 {
        self.0.get()
    }

    fn sleep(&self, time: Duration) {
        self.0.set(self.0.get() + time.as_nanos() as u64);
    }
}
