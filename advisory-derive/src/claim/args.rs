//! The arguments of `#[claim(…)]`.

use crate::args::argument::{Argument, Known, name_of, value_of};
use crate::args::duration::{self, Duration};
use crate::args::value::{quoted_ident, read};
use crate::errors::Errors;
use crate::tokens::{first_span, split_at_commas};
use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{LitInt, LitStr};

const CLAIM: [&str; 19] = [
    "table",
    "key",
    "order",
    "ttl",
    "renew",
    "locked_until",
    "locked_by",
    "completed_at",
    "failed_at",
    "error_message",
    "run_at",
    "attempts",
    "max_attempts",
    "completed",
    "failed",
    "backoff",
    "per",
    "limit",
    "crate",
];

/// In milliseconds: renewals without a pause would keep a connection busy.
const SHORTEST_RENEW: u64 = 10;
/// In milliseconds.
const DEFAULT_TTL: u64 = 60_000;

#[derive(Default)]
pub(crate) struct ClaimArgs {
    pub(crate) table: Option<TokenStream>,
    pub(crate) key: Option<Vec<Ident>>,
    pub(crate) order: Option<Vec<Order>>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) renew: Option<Duration>,
    pub(crate) locked_until: Option<Ident>,
    pub(crate) locked_by: Option<Ident>,
    pub(crate) completed_at: Option<MaybeColumn>,
    pub(crate) failed_at: Option<MaybeColumn>,
    pub(crate) error_message: Option<MaybeColumn>,
    pub(crate) run_at: Option<Ident>,
    pub(crate) attempts: Option<Ident>,
    /// A number, or a column.
    pub(crate) max_attempts: Option<TokenStream>,
    /// Columns to set where a row is completed.
    pub(crate) completed: Option<TokenStream>,
    /// Columns to set where a row fails.
    pub(crate) failed: Option<TokenStream>,
    pub(crate) backoff: Option<[Duration; 2]>,
    pub(crate) per: Option<Ident>,
    pub(crate) limit: Option<TokenStream>,
    pub(crate) krate: Option<TokenStream>,
}

/// The column that an argument names, as opposed to a number: a name that is not a constant's.
pub(crate) fn column_of(value: &TokenStream) -> Option<Ident> {
    let name: Ident = syn::parse2(value.clone()).ok()?;
    let is_constant = !name
        .to_string()
        .contains(|letter: char| letter.is_lowercase());
    (!is_constant).then_some(name)
}

/// A column, `"none"`, or `"delete"`.
pub(crate) enum MaybeColumn {
    Column(Ident),
    None,
    Delete,
}

pub(crate) struct Order {
    pub(crate) column: Ident,
    pub(crate) is_descending: bool,
    pub(crate) nulls_first: Option<bool>,
}

impl ClaimArgs {
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        for argument in split_at_commas(tokens) {
            let mut tokens = argument.into_iter();
            let (name, equals) = (tokens.next(), tokens.next());
            let value = tokens.collect();
            let Some(name) = name_of(name, &value, Known::only(&CLAIM), errors) else {
                continue;
            };
            // Without a value, these two name the column after themselves.
            let value = if equals.is_none() && (name == "run_at" || name == "attempts") {
                Some(TokenTree::Ident(name.clone()).into())
            } else {
                value_of(&name, equals.as_ref(), value, errors)
            };
            if let Some(value) = value {
                let name = &name;
                args.read(Argument {
                    name,
                    value,
                    errors,
                });
            }
        }
        args.check(errors);
        args
    }

    /// Refuses arguments that have no effect without another one, and times that do not fit.
    fn check(&self, errors: &mut Errors) {
        if let Some(most) = &self.max_attempts
            && self.attempts.is_none()
        {
            let wanted = "`max_attempts` needs a column that counts: write `attempts`, or `attempts = column`";
            errors.at(first_span(most), wanted);
        }
        if let (Some(completed), Some(MaybeColumn::Delete)) = (&self.completed, &self.completed_at)
        {
            let wanted = "`completed` sets columns, and `completed_at = \"delete\"` deletes the row: leave one of them out";
            errors.at(first_span(completed), wanted);
        }
        match (&self.per, &self.limit) {
            (Some(per), None) => {
                let wanted = format!(
                    "`per` needs a limit: write `per = \"{per}\", limit = 1`, so that one row of each `{per}` is claimed at a time"
                );
                errors.at(per.span(), wanted);
            }
            (None, Some(limit)) => {
                let wanted = "`limit` applies to each value of a column: write `per = \"tenant_id\", limit = 1`";
                errors.at(first_span(limit), wanted);
            }
            _ => {}
        }
        if let Some([first, longest]) = &self.backoff
            && let Some(((first, span), (longest, _))) =
                first.milliseconds().zip(longest.milliseconds())
        {
            if self.run_at.is_none() {
                let wanted = "`backoff` needs a column for the time of the next attempt: write `run_at`, or `run_at = column`";
                errors.at(span, wanted);
            }
            if first > longest {
                let wanted = "the first pause is longer than the longest: write the shorter time first, such as `backoff = \"10s..10m\"`";
                errors.at(span, wanted);
            }
        }
        if let Some((renew, span)) = self.renew.as_ref().and_then(Duration::milliseconds) {
            if renew < SHORTEST_RENEW {
                errors.at(span, "`renew` must be at least 10 ms: write a longer time");
            }
            let ttl = self.ttl.as_ref().map(Duration::milliseconds);
            let ttl = ttl.unwrap_or(Some((DEFAULT_TTL, span)));
            if ttl.is_some_and(|(ttl, _)| renew > ttl / 2) {
                let wanted = "`renew` must be at most half of `ttl`: write a shorter time";
                errors.at(span, wanted);
            }
        }
    }

    fn read(&mut self, argument: Argument<'_>) {
        match argument.name.to_string().as_str() {
            "table" => argument.set_expression(&mut self.table),
            "key" => argument.set(&mut self.key, key),
            "order" => argument.set(&mut self.order, order),
            "ttl" => argument.set_time(&mut self.ttl, &duration::CLAIM),
            "renew" => argument.set_time(&mut self.renew, &duration::CLAIM),
            "locked_until" => argument.set(&mut self.locked_until, column),
            "locked_by" => argument.set(&mut self.locked_by, column),
            "completed" => argument.set_expression(&mut self.completed),
            "failed" => argument.set_expression(&mut self.failed),
            "completed_at" => argument.set(&mut self.completed_at, maybe_column),
            "failed_at" => argument.set(&mut self.failed_at, maybe_column),
            "error_message" => argument.set(&mut self.error_message, maybe_column),
            "run_at" => argument.set(&mut self.run_at, column),
            "attempts" => argument.set(&mut self.attempts, column),
            "max_attempts" => argument.set(&mut self.max_attempts, at_least_one::<5>),
            "per" => argument.set(&mut self.per, per),
            "limit" => argument.set(&mut self.limit, at_least_one::<1>),
            "backoff" => argument.set(&mut self.backoff, backoff),
            "crate" => argument.set_expression(&mut self.krate),
            _ => argument.not_implemented(),
        }
    }
}

/// `id`, or `(matrix_id, chunk_hash)`.
fn key(value: TokenStream, _: &Ident, errors: &mut Errors) -> Option<Vec<Ident>> {
    const MAX_COLUMNS: usize = 4;
    let first = value.clone().into_iter().next();
    let columns = match &first {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
            split_at_commas(group.stream())
        }
        _ => vec![value],
    };
    let columns: Vec<Ident> = columns
        .into_iter()
        .filter_map(|column| {
            let wanted = "`key` takes columns: write `key = id` or `key = (matrix_id, chunk_hash)`";
            read(column, wanted, errors)
        })
        .collect();
    if let Some(more) = columns.get(MAX_COLUMNS) {
        return errors.refuse(
            more.span(),
            format_args!("a key has at most {MAX_COLUMNS} columns"),
        );
    }
    (!columns.is_empty()).then_some(columns)
}

/// `"priority desc, created_at"`.
fn order(value: TokenStream, _: &Ident, errors: &mut Errors) -> Option<Vec<Order>> {
    let wanted = "`order` takes a string: write `order = \"priority desc, created_at\"`";
    let literal: LitStr = read(value, wanted, errors)?;
    let text = literal.value();
    let order: Vec<Order> = text
        .split(',')
        .filter_map(|part| {
            let order = order_of(part, literal.span());
            if order.is_none() {
                let instead = if part.contains(['.', ':']) {
                    "a claim reads one table, so write a column of it alone; copy another table's value into one"
                } else {
                    "write a column, then optionally `asc` or `desc`, and `nulls first` or `nulls last`"
                };
                let wanted = format_args!("cannot order by `{}`: {instead}", part.trim());
                errors.at(literal.span(), wanted);
            }
            order
        })
        .collect();
    (!order.is_empty()).then_some(order)
}

fn order_of(part: &str, span: Span) -> Option<Order> {
    let words: Vec<String> = part.split_whitespace().map(str::to_lowercase).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (is_descending, rest) = match words.get(1..)? {
        ["desc", rest @ ..] => (true, rest),
        ["asc", rest @ ..] | rest => (false, rest),
    };
    let nulls_first = match rest {
        [] => None,
        ["nulls", "first"] => Some(true),
        ["nulls", "last"] => Some(false),
        _ => return None,
    };
    let mut column: Ident = syn::parse_str(part.split_whitespace().next()?).ok()?;
    column.set_span(span);
    Some(Order {
        column,
        is_descending,
        nulls_first,
    })
}

fn column(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<Ident> {
    let wanted = quoted_ident(&value).unwrap_or_else(|| name.clone());
    let wanted = format!("`{name}` takes a column: write `{name} = {wanted}`");
    read(value, wanted, errors)
}

/// `"tenant_id"`, or `tenant_id`.
fn per(value: TokenStream, _: &Ident, errors: &mut Errors) -> Option<Ident> {
    let span = first_span(&value);
    let column = match syn::parse2::<LitStr>(value.clone()) {
        Ok(literal) => syn::parse_str(literal.value().trim()).ok(),
        Err(_) => syn::parse2::<Ident>(value).ok(),
    };
    let Some(mut column) = column else {
        let wanted = "`per` takes a column: write `per = \"tenant_id\"`; for an expression, add a generated column to the table";
        return errors.refuse(span, wanted);
    };
    column.set_span(span);
    Some(column)
}

fn at_least_one<const EXAMPLE: u32>(
    value: TokenStream,
    name: &Ident,
    errors: &mut Errors,
) -> Option<TokenStream> {
    let wanted = format!("`{name}` takes a number of at least one: write `{name} = {EXAMPLE}`");
    let is_refused = match value.clone().into_iter().next() {
        Some(TokenTree::Literal(_)) => {
            let number = syn::parse2::<LitInt>(value.clone());
            let number = number.and_then(|number| number.base10_parse::<u32>());
            !number.is_ok_and(|number| number > 0)
        }
        first => first.is_none(),
    };
    if is_refused {
        return errors.refuse(first_span(&value), wanted);
    }
    Some(value)
}

/// `"10s..10m"`.
fn backoff(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<[Duration; 2]> {
    let span = first_span(&value);
    let literal = syn::parse2::<LitStr>(value).ok();
    let text = literal.map(|literal| literal.value()).unwrap_or_default();
    let Some((first, longest)) = text.split_once("..") else {
        let wanted =
            "`backoff` takes the first and the longest pause: write `backoff = \"10s..10m\"`";
        return errors.refuse(span, wanted);
    };
    let mut pause = |text: &str| {
        let literal = LitStr::new(text.trim(), span);
        duration::CLAIM.time(literal.into_token_stream(), name, errors)
    };
    let (first, longest) = (pause(first), pause(longest));
    Some([first?, longest?])
}

/// A column, `"none"`, or for the time of completion `"delete"`.
fn maybe_column(value: TokenStream, name: &Ident, errors: &mut Errors) -> Option<MaybeColumn> {
    match syn::parse2::<LitStr>(value.clone()) {
        Ok(literal) if literal.value() == "none" => Some(MaybeColumn::None),
        Ok(literal) if literal.value() == "delete" && name == "completed_at" => {
            Some(MaybeColumn::Delete)
        }
        Ok(literal) if literal.value() == "delete" => {
            let wanted = format!(
                "only `completed_at` can be \"delete\": remove `{name}`, and call `claim::delete` where the row is to be deleted"
            );
            errors.refuse(literal.span(), wanted)
        }
        _ => column(value, name, errors).map(MaybeColumn::Column),
    }
}

#[cfg(test)]
mod tests {
    use super::{CLAIM, ClaimArgs};
    use crate::errors::Errors;

    #[test]
    fn every_known_argument_is_implemented() {
        for name in CLAIM {
            let mut errors = Errors::default();
            let written = format!("{name} = \"x\"").parse().expect("tokens");
            ClaimArgs::parse(written, &mut errors);
            let errors = errors.into_compile_errors().to_string();
            assert!(!errors.contains("is not implemented"), "{errors}");
        }
    }

    fn parse(written: &str) -> Result<ClaimArgs, String> {
        let mut errors = Errors::default();
        let args = ClaimArgs::parse(written.parse().expect("tokens"), &mut errors);
        let args = errors.into_result(Some(args));
        args.map_err(|errors| errors.into_compile_errors().to_string())
    }

    #[test]
    fn the_order_has_a_direction_for_each_column() {
        for (written, is_descending, nulls_first) in [
            ("priority desc nulls last", true, Some(false)),
            ("created_at asc nulls first", false, Some(true)),
            ("id", false, None),
        ] {
            let args = parse(&format!("order = \"{written}\"")).ok();
            let order = args.and_then(|args| args.order?.pop()).expect("one column");
            let direction = (order.is_descending, order.nulls_first);
            assert!(written.starts_with(&order.column.to_string()));
            assert_eq!(direction, (is_descending, nulls_first), "{written}");
        }
        assert!(parse("order = \"\"").is_err());
        assert!(parse("order = \"id nulls\"").is_err());
    }

    #[test]
    fn a_key_is_a_column_or_columns_in_parentheses() {
        let columns = |written: &str| {
            parse(written)
                .ok()
                .and_then(|args| args.key)
                .map(|key| key.len())
        };
        assert_eq!(columns("key = id"), Some(1));
        assert_eq!(columns("key = (a, b, c, d)"), Some(4));
        assert_eq!(columns("key = (a, b, c, d, e)"), None);
        assert_eq!(columns("key = [a, b]"), None);
    }

    #[test]
    fn a_renewal_comes_twice_before_the_claim_expires() {
        assert!(parse("ttl = \"4s\", renew = \"2s\"").is_ok());
        assert!(parse("ttl = \"4s\", renew = \"2001ms\"").is_err());
        assert!(parse("renew = \"30s\"").is_ok());
        assert!(parse("renew = \"31s\"").is_err());
    }
}
