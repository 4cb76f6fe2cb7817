//! The outlet that a person switches.

use crate::{Clock, CutReceipt, Evidence, EvidenceKind, Outlet, PowerError, PowerState};
use std::io::{self, BufRead, Read, Write};

/// A line of an answer is read no further than this.
const ANSWER_BYTES: u64 = 256;
/// So many wrong answers are asked again; after that there is no answer.
const ATTEMPTS: usize = 10;

/// Asks a person to switch, and takes a typed word for the state.
///
/// It waits as long as the person does. The moment of the cut is not known better than "between the
/// prompt and the word".
#[derive(Debug)]
pub struct ManualOutlet<R, W, C> {
    name: String,
    answers: R,
    prompts: W,
    clock: C,
}

impl<R: BufRead, W: Write, C: Clock> ManualOutlet<R, W, C> {
    /// An outlet that prompts on `prompts` and reads from `answers`.
    pub fn new(name: impl Into<String>, answers: R, prompts: W, clock: C) -> Self {
        Self {
            name: name.into(),
            answers,
            prompts,
            clock,
        }
    }

    fn prompt(&mut self, text: &str) -> Result<(), PowerError> {
        writeln!(self.prompts, "{text}")
            .and_then(|()| self.prompts.flush())
            .map_err(|source| PowerError::NoPrompt {
                outlet: self.name.clone(),
                source,
            })
    }

    /// Waits for one of the words. Once the prompt is out, the person may have acted, so that
    /// whatever happens here is evidence and not an error.
    fn answer(&mut self, words: &[(&str, PowerState)]) -> Evidence {
        let (state, detail) = self.read_word(words);
        Evidence {
            kind: EvidenceKind::Person,
            at_ns: self.clock.now_ns(),
            state,
            detail,
        }
    }

    fn read_word(&mut self, words: &[(&str, PowerState)]) -> (PowerState, String) {
        let nothing = |why: String| {
            (
                PowerState::Unknown,
                format!("not confirmed by a person: {why}"),
            )
        };
        for _ in 0..ATTEMPTS {
            let line = match self.read_line() {
                Ok(Some(line)) => line,
                Ok(None) => return nothing("the input ended".to_owned()),
                Err(error) => return nothing(format!("the input failed: {error}")),
            };
            let known = words
                .iter()
                .find(|(word, _)| line.trim().eq_ignore_ascii_case(word));
            if let Some((word, state)) = known {
                return match state {
                    PowerState::Unknown => nothing(format!("they typed `{word}`")),
                    _ => (*state, format!("confirmed by a person, who typed `{word}`")),
                };
            }
            let list: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            if let Err(error) = self.prompt(&format!("Type {}.", list.join(" or "))) {
                return nothing(error.to_string());
            }
        }
        nothing(format!("no known word in {ATTEMPTS} lines"))
    }

    fn read_line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        self.answers
            .by_ref()
            .take(ANSWER_BYTES)
            .read_until(b'\n', &mut line)?;
        // A last line without its end was cut off, not typed: "off" may have been "offline".
        Ok(line
            .ends_with(b"\n")
            .then(|| String::from_utf8_lossy(&line).into_owned()))
    }
}

impl<R: BufRead, W: Write, C: Clock> Outlet for ManualOutlet<R, W, C> {
    fn name(&self) -> &str {
        &self.name
    }

    fn state(&mut self) -> Result<Evidence, PowerError> {
        let name = &self.name;
        self.prompt(&format!(
            "Is the power of `{name}` on or off? Type `on`, `off` or `unknown`."
        ))?;
        let (on, off) = (("on", PowerState::On), ("off", PowerState::Off));
        Ok(self.answer(&[on, off, ("unknown", PowerState::Unknown)]))
    }

    fn cut(&mut self) -> Result<CutReceipt, PowerError> {
        let mut receipt = CutReceipt::asked(&self.name, self.clock.now_ns());
        self.prompt(&format!(
            "CUT the power of `{}` now: pull the plug, do not shut down.\n\
             When you see that it is off, type `off`. If it cannot be cut, type `failed`.",
            self.name
        ))?;
        receipt.record(self.answer(&[("off", PowerState::Off), ("failed", PowerState::Unknown)]));
        Ok(receipt)
    }

    fn restore(&mut self) -> Result<Evidence, PowerError> {
        let asked_at_ns = self.clock.now_ns();
        self.prompt(&format!(
            "RESTORE the power of `{}` now.\n\
             When you see that it is on, type `on`. If it cannot be restored, type `failed`.",
            self.name
        ))?;
        let seen = self.answer(&[("on", PowerState::On), ("failed", PowerState::Unknown)]);
        if seen.state == PowerState::On {
            return Ok(seen);
        }
        Err(PowerError::NotRestored {
            outlet: self.name.clone(),
            waited_ms: seen.at_ns.saturating_sub(asked_at_ns) / 1_000_000,
            detail: seen.detail,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeClock;

    type Bench<'a> = ManualOutlet<&'a [u8], Vec<u8>, FakeClock>;

    fn person(answers: &str) -> Bench<'_> {
        ManualOutlet::new(
            "bench",
            answers.as_bytes(),
            Vec::new(),
            FakeClock::default(),
        )
    }

    #[test]
    fn the_typed_word_confirms_a_cut_by_a_person() {
        let mut outlet = person("off\n");
        let receipt = outlet.cut().unwrap();
        assert_eq!(
            receipt.confirmed_off().map(|off| off.by),
            Some(EvidenceKind::Person)
        );
        assert!(
            receipt.evidence()[0]
                .detail
                .starts_with("confirmed by a person")
        );
        let prompt = String::from_utf8(outlet.prompts).unwrap();
        assert!(
            prompt.contains("`bench`") && prompt.contains("type `off`"),
            "{prompt}"
        );
    }

    #[test]
    fn another_word_is_asked_again_and_confirms_nothing() {
        let mut outlet = person("yes\noffline\n\n OFF \n");
        assert!(outlet.cut().unwrap().confirmed_off().is_some());
        let prompts = String::from_utf8(outlet.prompts).unwrap();
        assert_eq!(prompts.matches("Type `off` or `failed`.").count(), 3);
    }

    #[test]
    fn a_person_who_goes_away_or_fails_leaves_the_cut_unconfirmed() {
        for answers in ["", "off", "failed\n", "on\n", &"no\n".repeat(50)] {
            let receipt = person(answers).cut().unwrap();
            assert_eq!(receipt.confirmed_off(), None, "{answers:?}");
            assert!(receipt.inconclusive_reason().is_some());
        }
    }

    #[test]
    fn endless_input_without_a_line_ends() {
        let mut outlet = ManualOutlet::new(
            "b",
            io::BufReader::new(io::repeat(b'x')),
            Vec::new(),
            FakeClock::default(),
        );
        assert_eq!(outlet.cut().unwrap().confirmed_off(), None);
    }

    #[test]
    fn a_prompt_that_cannot_be_shown_is_an_error_and_no_cut() {
        let mut full = [0_u8; 4];
        let mut outlet = ManualOutlet::new("b", &b"off\n"[..], &mut full[..], FakeClock::default());
        assert!(matches!(outlet.cut(), Err(PowerError::NoPrompt { .. })));
    }

    #[test]
    fn a_person_answers_for_the_state_and_for_the_return_of_power() {
        assert_eq!(
            person("unknown\n").state().unwrap().state,
            PowerState::Unknown
        );
        assert_eq!(person("on\n").state().unwrap().state, PowerState::On);
        assert_eq!(person("on\n").restore().unwrap().state, PowerState::On);
        assert!(matches!(
            person("failed\n").restore(),
            Err(PowerError::NotRestored { .. })
        ));
    }
}
