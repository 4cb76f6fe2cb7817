//! Judging a recorded trial: every cut, its crash states, the recovery of each
//! distinct image, and the oracle on every (image, cut).

pub mod cause;
pub mod explore;
pub mod ext4;
pub mod raw;
pub mod workers;

use plugpull_crash::state::CrashState;
use plugpull_crash::state::explorer::DurableChange;
use plugpull_model::observation::Observation;

/// Recovers crash images of one stack, one at a time.
pub trait Observer: Send {
    /// Builds the image, runs the stack's whole recovery, and looks. With
    /// `deep` the recovered stack is used once more and checked. Cuts come in
    /// ascending order: `changes` only grows.
    ///
    /// # Errors
    /// Why the image could not be judged; the rig's fault, not the stack's.
    fn observe(
        &mut self,
        changes: &[DurableChange],
        state: &CrashState,
        deep: bool,
    ) -> Result<Observation, String>;
}

/// A fault planted into the rig itself, to show that it is caught.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// None: the product.
    #[default]
    None,
    /// The oracle is given a ledger without acknowledgements.
    AcknowledgementsDropped,
    /// Acknowledgements are entered one record early.
    AcknowledgedEarly,
    /// A FLUSH makes nothing durable.
    FlushNotHonoured,
    /// Only the image with everything kept is enumerated.
    AllKeptOnly,
    /// Pages of the last image are not put back.
    PagesNotRestored,
    /// Every image is taken for the first one judged.
    ImagesConfused,
    /// The verdict of the first cut of an image is kept for its later cuts.
    VerdictsCached,
    /// Cuts end before the first acknowledgement.
    CutsTooEarly,
    /// Recovering an image fails inside the rig.
    ObserverFails,
    /// Tears inside a command are never tried.
    NoTears,
}
