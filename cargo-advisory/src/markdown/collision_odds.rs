//! The probability that two keys get one number.

use advisory_pattern::Derivation;

use crate::inventory::{Inventory, Key, is_lease, keys};

pub(super) fn lead(key_count: u64) -> String {
    format!(
        "The probability that two of {} different keys of one derivation get one number. Their holders then wait for each other \
         without need.",
        thousands(key_count)
    )
}

/// A row for each derivation: name, lock sites, bits, odds, and the number of keys with even odds.
pub(super) fn rows(inventory: &Inventory, key_count: u64) -> Vec<[String; 5]> {
    let row = |derivation: Derivation| {
        let sites = inventory.sites.iter().filter(|site| {
            site.derivation == derivation.name()
                && !is_lease(site)
                && keys(site).iter().any(Key::is_derived)
        });
        [
            format!("`{}`", derivation.name()),
            sites.count().to_string(),
            derivation.bits().to_string(),
            odds(derivation.collision_odds(key_count)),
            thousands(even_odds_at(derivation)),
        ]
    };
    Derivation::ALL.into_iter().map(row).collect()
}

/// Writes `77,163`.
pub(super) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes `1 in 8,600`, rounded to two digits, or `63 %` if it is likely.
fn odds(odds: f64) -> String {
    if odds <= 0.0 {
        return "none".to_owned();
    }
    if odds > 0.1 {
        return format!("{:.0} %", odds * 100.0);
    }
    format!("1 in {}", thousands(two_digits(odds.recip())))
}

/// The number of keys among which two get one number with a probability of 50 %: the square root of
/// 2 ln 2 times the count of numbers.
fn even_odds_at(derivation: Derivation) -> u64 {
    let numbers = f64::from(derivation.bits()).exp2();
    two_digits((2.0 * std::f64::consts::LN_2 * numbers).sqrt())
}

/// Rounds to two digits.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "two digits of a positive number are wanted; past 2^64 it saturates"
)]
fn two_digits(number: f64) -> u64 {
    let unit = 10_f64.powf((number.log10().floor() - 1.0).max(0.0));
    ((number / unit).round() * unit) as u64
}
