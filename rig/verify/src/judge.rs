//! One inspection against the ledger at one cut.

use plugpull_model::ledger::Ledger;
use plugpull_model::plan::PlannedCell;
use plugpull_model::scenario::ContractSpec;
use plugpull_model::units::Position;
use plugpull_model::verdict::{Breach, Detection, Fate, FindingKind};

use crate::fate::Cut;
use crate::inspect::{Inspection, Outcome};
use crate::record::{Bench, stack_object};

/// Everything in which the image breaches the contract, had the power gone at `cut`. Empty means that
/// nothing is wrong, and costs no allocation.
///
/// The order is fixed: what the stack as a whole breaches, then records by stream and sequence: their
/// raw bytes right after recovery, what the workload's recovery made of them, and their raw bytes after
/// use (only what was no breach before).
///
/// **The loss window.** A required record that is not whole, or was not given back, is `contractual`
/// when its acknowledgement is younger than `loss_window_ms` at `cut_time_ns` and no order promise is
/// broken: inside the window a record is as good as unacknowledged, so torn is no worse than lost. What
/// is there right after recovery and gone after use never is, nor is a record that was never issued.
///
/// **The order promise.** Under `order = "prefix"`, a required record A that is not whole while a
/// record B, issued after A was acknowledged, is whole adds an `unserializable` on A; the loss of A is
/// then not contractual. The same holds for what the workload's recovery gives back: B given back and A,
/// whole, not.
///
/// The ledger must not be void, and fit the plan ([`check_ledger`](crate::check_ledger)); the cut is at
/// or after `base`.
#[must_use]
pub fn judge(
    cell: &PlannedCell,
    contract: &ContractSpec,
    ledger: &Ledger,
    inspection: &Inspection,
    cut: Position,
    cut_time_ns: u64,
) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let whole = |kind, observed: &str, after_recovery| {
        of_the_stack(cell, kind, observed.to_owned(), after_recovery)
    };
    if let Some(words) = &inspection.kernel_faults {
        breaches.push(whole(FindingKind::KernelFault, words, false));
    }
    match &inspection.outcome {
        Outcome::Recovered => {}
        Outcome::Unmountable(words) => {
            breaches.push(whole(FindingKind::Unmountable, words, false));
            return breaches;
        }
        Outcome::Hung(words) => {
            breaches.push(whole(FindingKind::Hang, words, false));
            return breaches;
        }
    }
    let used = inspection.used.as_ref();
    if let Some(failed) = used.and_then(|used| used.failed.as_ref()) {
        let kind = if failed.down {
            FindingKind::Unmountable
        } else {
            FindingKind::Metadata
        };
        breaches.push(whole(kind, &failed.words, true));
    }
    if let Some(words) = used.and_then(|used| used.damage.as_ref()) {
        breaches.push(whole(FindingKind::Metadata, words, true));
    }
    let bench = Bench {
        cell,
        cut: Cut {
            contract,
            ledger,
            at: cut,
            time_ns: cut_time_ns,
            complete: ledger.is_complete_to(cut),
        },
        inspection,
    };
    bench.judge_first(&mut breaches);
    bench.judge_recovery(&mut breaches);
    if let Some(second) = used.and_then(|used| used.look.as_ref()) {
        bench.judge_second(second, &mut breaches);
    }
    breaches
}

fn of_the_stack(
    cell: &PlannedCell,
    kind: FindingKind,
    observed: String,
    after_recovery: bool,
) -> Breach {
    Breach {
        kind,
        object: stack_object(cell).to_owned(),
        record: None,
        expected: Fate::Required,
        observed,
        offset: None,
        sector: None,
        newer_survives: false,
        after_recovery,
        detection: Detection::Detected,
        acknowledged_at: None,
        ledger_line: None,
        contractual: false,
    }
}
