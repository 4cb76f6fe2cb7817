//! Judging a recorded trial: every cut, its crash states, the recovery of each
//! distinct image, and the oracle on every (image, cut).

pub mod cause;
pub mod explain;
mod explaining;
pub mod explore;
pub mod ext4;
pub mod holds;
pub mod judging;
pub mod raw;
pub mod sabotage;
pub mod workers;

pub use sabotage::Sabotage;

use plugpull_crash::state::CrashState;
use plugpull_crash::state::explorer::DurableChange;
use plugpull_model::observation::Observation;

/// Recovers crash images of one stack, one at a time.
pub trait Observer: Send {
    /// Builds the image, runs the stack's whole recovery, and looks. With
    /// `deep` the recovered stack is used once more and checked. Cuts come in
    /// ascending order; `fresh` is what became durable since this observer's
    /// last image.
    ///
    /// # Errors
    /// Why the image could not be judged; the rig's fault, not the stack's.
    fn observe(
        &mut self,
        fresh: &[DurableChange],
        state: &CrashState,
        deep: bool,
    ) -> Result<Observation, String>;
}
