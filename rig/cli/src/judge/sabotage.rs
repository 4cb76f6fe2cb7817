//! Faults planted into the rig itself: `plugpull selftest` shows that each is caught.

use plugpull_crash::state::enumerate::CutStates;
use plugpull_model::drive::{DriveSettings, Honesty};
use plugpull_model::ledger::{Ledger, LedgerLine, OperationId};
use plugpull_model::units::{Position, Sequence};

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

/// The drive as a broken rig would take it.
#[must_use]
pub fn sabotaged_drive(drive: &DriveSettings, sabotage: Sabotage) -> DriveSettings {
    let mut drive = drive.clone();
    match sabotage {
        Sabotage::FlushNotHonoured => drive.flush = Honesty::Ignored,
        Sabotage::NoTears => drive.atomic_write_bytes = u32::MAX,
        _ => {}
    }
    drive
}

/// The states as a broken rig would enumerate them.
pub fn sabotage_states(states: &mut CutStates, sabotage: Sabotage) {
    if sabotage == Sabotage::AllKeptOnly {
        // The state that keeps most: with honest chains, everything newest.
        if let Some(most) = states
            .states
            .iter()
            .max_by_key(|state| state.overrides.len())
            .cloned()
        {
            states.states = vec![most];
        }
    }
}

/// The ledger as a broken rig would hand it to the oracle.
#[must_use]
pub fn sabotaged_ledger(ledger: &Ledger, sabotage: Sabotage) -> Ledger {
    if !matches!(
        sabotage,
        Sabotage::AcknowledgementsDropped | Sabotage::AcknowledgedEarly
    ) {
        return ledger.clone();
    }
    let mut out = Ledger::default();
    // The lines come from a sound ledger, in its own order: none contradicts another.
    for (id, state) in ledger.iter() {
        let _ = out.push(LedgerLine::Issued {
            operation: *id,
            at: state.issued_at,
            time_ns: state.issued_ns,
        });
        if let (Some(acknowledged), Sabotage::AcknowledgedEarly) = (state.acknowledged, sabotage) {
            let before = OperationId {
                sequence: Sequence(id.sequence.0.saturating_sub(1)),
                ..*id
            };
            let at = ledger
                .get(&before)
                .and_then(|state| state.acknowledged)
                .map_or(acknowledged.at, |before| before.at)
                .max(state.issued_at);
            let _ = out.push(LedgerLine::Acknowledged {
                operation: *id,
                at,
                time_ns: acknowledged.time_ns,
                latency_ns: 0,
            });
        }
    }
    let _ = out.push(LedgerLine::Complete {
        at: Position(u64::MAX),
    });
    out
}
