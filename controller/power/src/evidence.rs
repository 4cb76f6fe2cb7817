//! What an outlet saw, and the receipt of a cut.

use crate::PowerError;
use serde::{Deserialize, Serialize};

/// The version of the serialised [`CutReceipt`].
pub const RECEIPT_SCHEMA: u32 = 1;

/// More observations than this are not kept: the first ones and the latest are.
const KEPT_OBSERVATIONS: usize = 32;

/// What is known of the power of one outlet at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PowerState {
    /// The supply is on.
    On,
    /// The supply is off.
    Off,
    /// Neither: no answer, an answer that fits both or none, a failure. Never read as off.
    Unknown,
}

/// By what a state was seen. The list is closed, and each kind has its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvidenceKind {
    /// The outlet was asked to switch, and how it replied. Outlets accept requests that they never
    /// carry out, so that this confirms nothing.
    Request,
    /// A person looked and typed the confirmation word.
    Person,
    /// The outlet, asked for its own state, answered.
    OutletStatus,
    /// The outlet measured the load behind it.
    MeasuredLoad,
    /// A management controller answered for the chassis.
    ChassisStatus,
    /// The drive counts power losses that no shutdown announced, and its count went up.
    UnsafeShutdownCount,
    /// The device under test fell silent. A cut network looks the same.
    DutSilent,
    /// The device under test came back with another boot id. A warm reset looks the same.
    BootIdentity,
}

impl EvidenceKind {
    /// Whether a state of off seen by this kind confirms a cut.
    pub const fn confirms_off(self) -> bool {
        match self {
            Self::Person
            | Self::OutletStatus
            | Self::MeasuredLoad
            | Self::ChassisStatus
            | Self::UnsafeShutdownCount => true,
            Self::Request | Self::DutSilent | Self::BootIdentity => false,
        }
    }

    /// What this kind does not prove, in the words that a report repeats.
    pub const fn limits(self) -> &'static str {
        match self {
            Self::Request => "a request that was accepted need not have been carried out",
            Self::Person => "the moment is as exact as the person; nothing proves that they looked",
            Self::OutletStatus => {
                "the state of the switch, not of what hangs behind it: a wrong outlet, a second \
                 supply or a power supply's hold-up go unseen"
            }
            Self::MeasuredLoad => {
                "no load is seen on a second supply either, and a meter may lag by seconds"
            }
            Self::ChassisStatus => {
                "the main rail of the host; standby power may keep a drive backplane alive"
            }
            Self::UnsafeShutdownCount => "read after the restart: that power went, not when",
            Self::DutSilent => "a cut network or a hung host is as silent",
            Self::BootIdentity => "a reset without loss of power changes it too",
        }
    }
}

/// One observation of one outlet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// By what it was seen.
    pub kind: EvidenceKind,
    /// When the observation was complete, on the clock of the controller.
    pub at_ns: u64,
    /// What was seen.
    pub state: PowerState,
    /// The words of the outlet or of the person, bounded.
    pub detail: String,
}

/// When and how a cut was confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confirmation {
    /// Power was off by then; it may have gone any time since it was asked off.
    pub at_ns: u64,
    /// By what.
    pub by: EvidenceKind,
}

/// What is known of one cut: asked when, confirmed off or not, and by what.
///
/// The confirmation is always derived from the evidence. A stored receipt that claims another is
/// refused when it is read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "ReceiptRecord", try_from = "ReceiptRecord")]
pub struct CutReceipt {
    outlet: String,
    asked_at_ns: u64,
    evidence: Vec<Evidence>,
}

impl CutReceipt {
    /// The receipt of a cut that is asked for at `asked_at_ns`: a time before the first act that
    /// could cut power.
    pub fn asked(outlet: impl Into<String>, asked_at_ns: u64) -> Self {
        Self {
            outlet: outlet.into(),
            asked_at_ns,
            evidence: Vec::new(),
        }
    }

    /// Adds an observation. One that repeats the last adds nothing; beyond a bound the latest takes
    /// the place of the last, unless that one confirms the cut.
    pub fn record(&mut self, seen: Evidence) {
        if let Some(last) = self.evidence.last() {
            let repeats =
                (last.kind, last.state, &last.detail) == (seen.kind, seen.state, &seen.detail);
            if repeats && last.at_ns >= self.asked_at_ns {
                return;
            }
            if self.evidence.len() >= KEPT_OBSERVATIONS && !self.confirms(last) {
                self.evidence.pop();
            }
        }
        self.evidence.push(seen);
    }

    /// The outlet.
    pub fn outlet(&self) -> &str {
        &self.outlet
    }

    /// When the cut was asked for. Power went no earlier.
    pub fn asked_at_ns(&self) -> u64 {
        self.asked_at_ns
    }

    /// Everything seen, in order.
    pub fn evidence(&self) -> &[Evidence] {
        &self.evidence
    }

    /// The first observation that confirms the cut. What was seen before the cut was asked for
    /// confirms nothing.
    pub fn confirmed_off(&self) -> Option<Confirmation> {
        let seen = self.evidence.iter().find(|seen| self.confirms(seen))?;
        Some(Confirmation {
            at_ns: seen.at_ns,
            by: seen.kind,
        })
    }

    /// Why the trial is inconclusive, if this cut makes it so.
    pub fn inconclusive_reason(&self) -> Option<String> {
        if self.confirmed_off().is_some() {
            return None;
        }
        let last = self
            .evidence
            .last()
            .map_or("nothing was seen", |seen| seen.detail.as_str());
        Some(format!(
            "unconfirmed cut: outlet `{}` was never seen off ({last})",
            self.outlet
        ))
    }

    fn confirms(&self, seen: &Evidence) -> bool {
        seen.kind.confirms_off() && seen.state == PowerState::Off && seen.at_ns >= self.asked_at_ns
    }
}

/// The serialised form of a [`CutReceipt`], as `cut.json` holds it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptRecord {
    /// [`RECEIPT_SCHEMA`].
    pub schema: u32,
    /// The outlet.
    pub outlet: String,
    /// When the cut was asked for.
    pub asked_at_ns: u64,
    /// When and by what it was confirmed; none makes the trial inconclusive.
    pub confirmed_off: Option<Confirmation>,
    /// Everything seen, in order.
    pub evidence: Vec<Evidence>,
}

impl From<CutReceipt> for ReceiptRecord {
    fn from(receipt: CutReceipt) -> Self {
        Self {
            schema: RECEIPT_SCHEMA,
            confirmed_off: receipt.confirmed_off(),
            outlet: receipt.outlet,
            asked_at_ns: receipt.asked_at_ns,
            evidence: receipt.evidence,
        }
    }
}

impl TryFrom<ReceiptRecord> for CutReceipt {
    type Error = PowerError;

    fn try_from(record: ReceiptRecord) -> Result<Self, PowerError> {
        let ReceiptRecord {
            schema,
            outlet,
            asked_at_ns,
            confirmed_off,
            evidence,
        } = record;
        if schema != RECEIPT_SCHEMA {
            let problem = format!("schema {schema} is not {RECEIPT_SCHEMA}, the one known here");
            return Err(PowerError::Receipt { outlet, problem });
        }
        let receipt = Self {
            outlet,
            asked_at_ns,
            evidence,
        };
        if receipt.confirmed_off() == confirmed_off {
            return Ok(receipt);
        }
        let problem = "`confirmed_off` does not follow from `evidence`".to_owned();
        Err(PowerError::Receipt {
            outlet: receipt.outlet,
            problem,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(kind: EvidenceKind, at_ns: u64, state: PowerState) -> Evidence {
        Evidence {
            kind,
            at_ns,
            state,
            detail: format!("{state:?}"),
        }
    }

    fn receipt(evidence: &[Evidence]) -> CutReceipt {
        let mut receipt = CutReceipt::asked("pdu1", 100);
        evidence
            .iter()
            .cloned()
            .for_each(|seen| receipt.record(seen));
        receipt
    }

    #[test]
    fn a_request_alone_never_confirms_a_cut() {
        let receipt = receipt(&[seen(EvidenceKind::Request, 101, PowerState::Off)]);
        assert_eq!(receipt.confirmed_off(), None);
        assert!(
            receipt
                .inconclusive_reason()
                .is_some_and(|reason| reason.contains("pdu1"))
        );
    }

    #[test]
    fn silence_and_a_new_boot_id_never_confirm_a_cut() {
        for kind in [EvidenceKind::DutSilent, EvidenceKind::BootIdentity] {
            assert_eq!(
                receipt(&[seen(kind, 101, PowerState::Off)]).confirmed_off(),
                None
            );
        }
    }

    #[test]
    fn off_seen_before_the_cut_was_asked_for_confirms_nothing() {
        let early = seen(EvidenceKind::OutletStatus, 99, PowerState::Off);
        assert_eq!(receipt(&[early]).confirmed_off(), None);
    }

    #[test]
    fn the_first_confirming_observation_is_the_confirmation() {
        let receipt = receipt(&[
            seen(EvidenceKind::OutletStatus, 101, PowerState::On),
            seen(EvidenceKind::OutletStatus, 105, PowerState::Off),
            seen(EvidenceKind::MeasuredLoad, 109, PowerState::Off),
        ]);
        let expected = Confirmation {
            at_ns: 105,
            by: EvidenceKind::OutletStatus,
        };
        assert_eq!(receipt.confirmed_off(), Some(expected));
        assert_eq!(receipt.inconclusive_reason(), None);
    }

    #[test]
    fn endless_observations_are_bounded_and_the_confirmation_is_kept() {
        let mut receipt = CutReceipt::asked("pdu1", 0);
        for at_ns in 0..1000 {
            let mut noise = seen(EvidenceKind::OutletStatus, at_ns, PowerState::Unknown);
            noise.detail = format!("reading {at_ns}");
            receipt.record(noise);
        }
        receipt.record(seen(EvidenceKind::OutletStatus, 1000, PowerState::Off));
        receipt.record(seen(EvidenceKind::OutletStatus, 1001, PowerState::On));
        assert!(receipt.evidence().len() <= KEPT_OBSERVATIONS + 1);
        assert_eq!(receipt.confirmed_off().map(|off| off.at_ns), Some(1000));
    }

    #[test]
    fn a_receipt_survives_its_serialisation() {
        let receipt = receipt(&[seen(EvidenceKind::Person, 120, PowerState::Off)]);
        let json = serde_json::to_string(&receipt).unwrap();
        assert_eq!(
            json,
            r#"{"schema":1,"outlet":"pdu1","asked_at_ns":100,"confirmed_off":{"at_ns":120,"by":"person"},"evidence":[{"kind":"person","at_ns":120,"state":"off","detail":"Off"}]}"#
        );
        assert_eq!(serde_json::from_str::<CutReceipt>(&json).unwrap(), receipt);
    }

    #[test]
    fn a_stored_receipt_that_claims_more_than_its_evidence_is_refused() {
        let json = r#"{"schema":1,"outlet":"pdu1","asked_at_ns":100,
            "confirmed_off":{"at_ns":120,"by":"person"},"evidence":[]}"#;
        let error = serde_json::from_str::<CutReceipt>(json)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("pdu1") && error.contains("unconfirmed"),
            "{error}"
        );
    }

    #[test]
    fn a_stored_receipt_of_another_schema_is_refused() {
        let json =
            r#"{"schema":2,"outlet":"pdu1","asked_at_ns":1,"confirmed_off":null,"evidence":[]}"#;
        assert!(serde_json::from_str::<CutReceipt>(json).is_err());
    }
}
