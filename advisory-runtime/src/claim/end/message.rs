//! The message of a failure, cut to what its column takes.

use diesel::result::{DatabaseErrorKind, Error as DieselError};
use std::borrow::Cow;

/// The length of a text that a column has refused without saying how much it takes.
const CUT: usize = 100;

/// Returns `true` if the row's content was refused: a text that does not fit, a `CHECK`, a trigger.
pub(in crate::claim) fn is_of_row(error: &DieselError) -> bool {
    let DieselError::DatabaseError(kind, answer) = error else {
        return false;
    };
    match kind {
        DatabaseErrorKind::CheckViolation
        | DatabaseErrorKind::NotNullViolation
        | DatabaseErrorKind::UniqueViolation
        | DatabaseErrorKind::ForeignKeyViolation => true,
        // A mistake in the statement has a position.
        DatabaseErrorKind::Unknown => answer.statement_position().is_none(),
        _ => false,
    }
}

/// Cuts a text to the length that the server says the column takes. If it does not say, cuts it to
/// [`CUT`] characters and replaces those that an encoding may lack.
pub(super) fn cut<'m>(message: &'m str, refused: &DieselError) -> Cow<'m, str> {
    let stated = match refused {
        DieselError::DatabaseError(_, answer) => longest(answer.message()),
        _ => None,
    };
    let Some(longest) = stated else {
        let short = message.chars().take(CUT);
        let plain = short.map(|letter| if letter.is_ascii() { letter } else { '?' });
        return plain.collect::<String>().into();
    };
    let end = message.char_indices().nth(longest);
    message[..end.map_or(message.len(), |(end, _)| end)].into()
}

/// The length in `value too long for type character varying(50)`, which no translation changes.
fn longest(refusal: &str) -> Option<usize> {
    let (_, rest) = refusal.rsplit_once('(')?;
    rest.split_once(')')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{cut, longest};
    use diesel::result::Error as DieselError;

    #[test]
    fn the_server_says_how_long_a_text_may_be() {
        assert_eq!(
            longest("value too long for type character varying(50)"),
            Some(50)
        );
        assert_eq!(longest("Wert zu lang für Typ character(7)"), Some(7));
        assert_eq!(longest("new row violates check constraint \"short\""), None);
    }

    #[test]
    fn a_text_is_cut_to_what_every_encoding_has() {
        let long = "é".repeat(500);
        assert_eq!(cut(&long, &DieselError::NotFound), "?".repeat(100));
        assert_eq!(cut("why", &DieselError::NotFound), "why");
    }
}
