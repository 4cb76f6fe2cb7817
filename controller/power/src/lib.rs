//! Outlets: cut and restore power through one trait, and return evidence that it went off.
//!
//! An [`Outlet`] is one switchable supply to one device under test. To ask for a cut is not to have
//! one: [`Outlet::cut`] returns a [`CutReceipt`] that says when power was asked off, whether it was
//! confirmed off, and by which [`EvidenceKind`]. A receipt without confirmation makes the trial
//! inconclusive, never a pass. What each kind of cut can and cannot lose stands in `CUTS.md`.

mod clock;
mod command;
mod error;
mod evidence;
mod exec;
mod manual;

pub use clock::{Clock, MonotonicClock};
pub use command::{CommandEnd, CommandOutput, Commands, KEPT_OUTPUT_BYTES, Processes};
pub use error::PowerError;
pub use evidence::{
    Confirmation, CutReceipt, Evidence, EvidenceKind, PowerState, RECEIPT_SCHEMA, ReceiptRecord,
};
pub use exec::{ExecConfig, ExecOutlet, StateMatch};
pub use manual::ManualOutlet;

/// One switchable supply to one device under test.
pub trait Outlet {
    /// The name that receipts, prompts and errors carry.
    fn name(&self) -> &str;

    /// Asks for the state now. `Unknown` is an answer, not an error.
    ///
    /// A runner that times its cuts calls this right before the interval that it times: an outlet
    /// that has been seen on can cut without asking for its state first.
    fn state(&mut self) -> Result<Evidence, PowerError>;

    /// Cuts power and waits until that is confirmed or the outlet gives up.
    ///
    /// Whatever may have cut power ends in a receipt, an unconfirmed one if need be; an error means
    /// that nothing was cut.
    fn cut(&mut self) -> Result<CutReceipt, PowerError>;

    /// Restores power and returns the evidence that it is on again.
    ///
    /// An outlet that is not seen on is an error: an unattended campaign cannot go on.
    fn restore(&mut self) -> Result<Evidence, PowerError>;
}

#[cfg(test)]
mod testing;
