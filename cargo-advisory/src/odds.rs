//! How are chances and large counts written for people?

use advisory_pattern::Derivation;

/// Writes `77,163`.
pub(crate) fn thousands(count: u64) -> String {
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

/// Writes `1 in 8,600`, two digits of it, or `63 %` where it is likely.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "two digits of a positive number are wanted; past 2^64 it saturates"
)]
pub(crate) fn chance(odds: f64) -> String {
    if odds <= 0.0 {
        return "none".to_owned();
    }
    if odds > 0.1 {
        return format!("{:.0} %", odds * 100.0);
    }
    let one_in = odds.recip();
    let unit = 10_f64.powf((one_in.log10().floor() - 1.0).max(0.0));
    format!(
        "1 in {}",
        thousands(((one_in / unit).round() * unit) as u64)
    )
}

/// So many keys have an even chance that some two become one number: the square root of 2 ln 2 for each number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "two digits of a positive number are wanted"
)]
pub(crate) fn even(derivation: Derivation) -> u64 {
    let keys = (2.0 * std::f64::consts::LN_2 * f64::from(derivation.bits()).exp2()).sqrt();
    let unit = 10_f64.powf(keys.log10().floor() - 1.0);
    ((keys / unit).round() * unit) as u64
}
