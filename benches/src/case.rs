//! One comparison, measured in pairs.

use crate::flags::Flags;
use crate::setting::Setting;
use crate::side::{Beside, Open, Operation, Side};
use crate::spread::{median, spread};
use std::fmt;

/// The two sides that are compared.
pub(crate) struct Case {
    pub(crate) what: &'static str,
    /// Details that the setting does not include.
    pub(crate) note: &'static str,
    pub(crate) setting: Setting,
    pub(crate) rival: &'static str,
}

/// A case, and its results.
pub(crate) struct Measured {
    case: Case,
    /// The speed of ours in each round, in operations a second, sorted.
    ours: Vec<f64>,
    /// The ratio of ours to the rival in each round, sorted.
    ratios: Vec<f64>,
}

impl Case {
    pub(crate) const HEAD: &'static str = "case                       note             on    conns keys      delay   ops/s  against                         ratio";

    /// `None` if the flags leave it out.
    pub(crate) fn wanted(
        flags: &Flags,
        [what, note]: [&'static str; 2],
        setting: Setting,
        rival: &'static str,
    ) -> Option<Self> {
        // The text that `--only` searches.
        let label = format!("{what} {note} {setting} {rival}");
        flags.wants(&label).then_some(Self {
            what,
            note,
            setting,
            rival,
        })
    }

    /// Measures operations that need only an address and a number.
    pub(crate) async fn pair<O, R>(self, flags: &Flags, ours: &str, theirs: &str) -> Measured
    where
        O: Open + Operation + 'static,
        R: Open + Operation + 'static,
    {
        let (connections, keys) = (self.setting.connections, self.setting.keys);
        let mut ours = Beside::<O>::open(ours, connections, keys).await;
        let mut theirs = Beside::<R>::open(theirs, connections, keys).await;
        self.measure(flags.pairs(), &mut ours, &mut theirs).await
    }

    /// Measures both sides in rounds; the first round is a warm-up.
    pub(crate) async fn measure(
        self,
        rounds: usize,
        ours: &mut impl Side,
        theirs: &mut impl Side,
    ) -> Measured {
        let half = self.setting.half();
        let mut measured = Measured {
            ours: Vec::new(),
            ratios: Vec::new(),
            case: self,
        };
        for round in 0..=measured.case.setting.rounds(rounds) {
            // The second side finds warmer caches.
            let (our, their) = if round % 2 == 0 {
                let our = ours.run(half).await;
                (our, theirs.run(half).await)
            } else {
                let their = theirs.run(half).await;
                (ours.run(half).await, their)
            };
            if round > 0 {
                measured.ours.push(our);
                measured.ratios.push(our / their);
            }
        }
        measured.ours.sort_by(f64::total_cmp);
        measured.ratios.sort_by(f64::total_cmp);
        measured
    }
}

impl Measured {
    pub(crate) fn json(&self) -> serde_json::Value {
        let Case {
            what,
            note,
            setting,
            rival,
        } = &self.case;
        let (ratio, low, high) = spread(&self.ratios);
        serde_json::json!({
            "case": what,
            "note": note,
            "transport": setting.transport(),
            "connections": setting.connections,
            "keys": setting.keys.name(),
            "delay_ms": setting.delay_ms,
            "rival": rival,
            "rounds": self.ratios.len(),
            "ops": median(&self.ours),
            "ratio": ratio,
            "low": low,
            "high": high,
        })
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case {
            what,
            note,
            setting,
            rival,
        } = &self.case;
        let (ratio, low, high) = spread(&self.ratios);
        let ops = median(&self.ours);
        write!(
            f,
            "{what:<26} {note:<16} {setting} {ops:>7.0}  {rival:<30} {ratio:>6.2} ({low:.2} to {high:.2})"
        )
    }
}
