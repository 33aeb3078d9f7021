//! Statements written as plain SQL: their fragments, their named values, and the qualification of
//! their names.
//!
//! Such a statement follows a few rules, and a test on a server shows that its qualified form keeps
//! the meaning and names nothing outside `pg_catalog`:
//!
//! - Keywords are upper case, names are lower case. So `COALESCE(…)` and `INTERVAL '1 ms'` are
//!   grammar, and `now()` and `::int8` are names to qualify. Names in double quotes are the user's,
//!   and stay unchanged.
//! - An alias with columns follows `AS`: `unnest(:keys) AS row (key)`.
//! - Qualified operators all have the precedence of `||`. Any other order needs parentheses:
//!   `a > (b + c)`, `a + (b * c)`.
//! - No `IN`, `BETWEEN`, `LIKE`, `IS DISTINCT FROM`, `NULLIF`, `CASE x WHEN` and `USING`: each
//!   looks up an operator that cannot be qualified. Write `= ANY ('{…}'::text[])` and the
//!   comparison.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'s> {
    Sql(&'s str),
    /// `:name`.
    Value(&'s str),
}

/// Replaces each `{name}` that `find` knows by its fragment, and those in the fragment too.
pub(crate) fn fill<'f>(sql: &str, find: &impl Fn(&str) -> Option<&'f str>) -> String {
    let (mut filled, mut rest) = (String::with_capacity(sql.len()), sql);
    while let Some((before, after_brace)) = rest.split_once('{') {
        filled.push_str(before);
        let named = after_brace.split_once('}');
        let named = named.and_then(|(name, after)| Some((find(name)?, after)));
        if let Some((fragment, after)) = named {
            filled.push_str(&fill(fragment, find));
            rest = after;
        } else {
            filled.push('{');
            rest = after_brace;
        }
    }
    filled + rest
}

/// Qualifies operators, functions and types with `pg_catalog.`, so that no `search_path` can change
/// their meaning. Leaves comments out.
#[must_use]
pub fn qualify(sql: &str) -> String {
    let tokens = tokens(sql);
    let mut writer = Writer::default();
    for at in 0..tokens.len() {
        writer.put(&tokens, at);
    }
    writer.sql
}

/// Splits a statement at its named values.
pub(crate) fn parts(sql: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut from = 0;
    for value in tokens(sql).into_iter().filter(|it| it.kind == Kind::Value) {
        let start = sql.len() - value.rest.len();
        parts.extend([Part::Sql(&sql[from..start]), Part::Value(&value.text[1..])]);
        from = start + value.text.len();
    }
    parts.push(Part::Sql(&sql[from..]));
    parts
}

/// Replaces the named values by `$1`, `$2`, … in the order of `names`. An unknown value becomes
/// `$0`, which the server refuses.
pub(crate) fn number(sql: &str, names: &[&str]) -> String {
    let mut numbered = String::with_capacity(sql.len());
    for part in parts(sql) {
        match part {
            Part::Sql(sql) => numbered.push_str(sql),
            Part::Value(name) => {
                let at = names.iter().position(|other| *other == name);
                super::put!(numbered, "${}", at.map_or(0, |at| at + 1));
            }
        }
    }
    numbered
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A keyword, or a name that is not quoted.
    Word,
    Quoted,
    Text,
    Number,
    /// `:name`.
    Value,
    /// `$1`, or `{name}`.
    Opaque,
    Operator,
    /// A parenthesis, a bracket, `,`, `;`, `.`, `:` or `::`.
    Mark,
}

#[derive(Clone, Copy, Debug)]
struct Token<'s> {
    kind: Kind,
    text: &'s str,
    /// The statement from this token on.
    rest: &'s str,
    is_spaced: bool,
}

impl Token<'_> {
    fn is_mark(&self, mark: &str) -> bool {
        self.kind == Kind::Mark && self.text == mark
    }

    fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text == word
    }

    fn is_keyword(&self) -> bool {
        self.kind == Kind::Word && !self.text.contains(|letter: char| letter.is_lowercase())
    }

    /// Returns whether an operator after it has an operand on its left.
    fn is_operand(&self) -> bool {
        match self.kind {
            Kind::Word => {
                !self.is_keyword() || matches!(self.text, "END" | "NULL" | "TRUE" | "FALSE")
            }
            Kind::Mark => matches!(self.text, ")" | "]"),
            Kind::Operator => false,
            _ => true,
        }
    }
}

fn tokens(sql: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut is_spaced) = (sql, false);
    while let Some(first) = rest.chars().next() {
        if let Some(length) = blank(rest) {
            rest = &rest[length..];
            is_spaced = true;
            continue;
        }
        let (kind, length) = token(rest);
        let length = length.max(first.len_utf8()).min(rest.len());
        let text = &rest[..length];
        tokens.push(Token {
            kind,
            text,
            rest,
            is_spaced,
        });
        rest = &rest[length..];
        is_spaced = false;
    }
    tokens
}

/// The length of the white space or the comment here.
fn blank(rest: &str) -> Option<usize> {
    if rest.starts_with("--") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(rest.find("*/").map_or(rest.len(), |end| end + 2));
    }
    let white = rest.len() - rest.trim_start().len();
    (white > 0).then_some(white)
}

fn token(rest: &str) -> (Kind, usize) {
    let mut letters = rest.chars();
    let first = letters.next().unwrap_or_default();
    let second = letters.next().unwrap_or_default();
    match first {
        'e' | 'E' if second == '\'' => (Kind::Text, 1 + quoted(&rest[1..], '\'', true)),
        '\'' => (Kind::Text, quoted(rest, '\'', false)),
        '"' => (Kind::Quoted, quoted(rest, '"', false)),
        ':' if second == ':' => (Kind::Mark, 2),
        ':' if is_word(second) => (Kind::Value, 1 + while_word(&rest[1..])),
        '$' => (Kind::Opaque, 1 + while_word(&rest[1..])),
        '{' => (Kind::Opaque, 1 + rest.find('}').unwrap_or(rest.len())),
        _ if first.is_ascii_digit() => {
            let end = rest.find(|letter| !is_word(letter) && letter != '.');
            (Kind::Number, end.unwrap_or(rest.len()))
        }
        _ if is_word(first) => (Kind::Word, while_word(rest)),
        _ if is_operator(first) => (Kind::Operator, operator(rest)),
        _ => (Kind::Mark, first.len_utf8()),
    }
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn while_word(rest: &str) -> usize {
    rest.find(|letter| !is_word(letter)).unwrap_or(rest.len())
}

fn is_operator(letter: char) -> bool {
    "+-*/<>=~!@#%^&|`?".contains(letter)
}

/// The length of an operator by the server's rules: it ends before a comment, and an operator of
/// only arithmetic and comparison letters does not end in a sign, so `=-` is two.
fn operator(rest: &str) -> usize {
    let end = rest.find(|letter| !is_operator(letter));
    let all = &rest[..end.unwrap_or(rest.len())];
    let comment = ["--", "/*"].into_iter().filter_map(|it| all.find(it)).min();
    let all = &all[..comment.unwrap_or(all.len())];
    if all.contains(|letter| "~!@#%^&|`?".contains(letter)) {
        return all.len();
    }
    all.trim_end_matches(['+', '-']).len().max(1)
}

/// The length of a text in quotes. A doubled quote does not end it; with escapes, nor does a quote
/// after a backslash.
fn quoted(rest: &str, quote: char, has_escapes: bool) -> usize {
    let mut letters = rest.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' && has_escapes {
            letters.next();
        } else if letter == quote && letters.next_if(|(_, next)| *next == quote).is_none() {
            return at + 1;
        }
    }
    rest.len()
}

/// The position in a list of assignments: after `SET`, the first `=` of each item assigns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Set {
    #[default]
    Outside,
    Column,
    Value,
}

#[derive(Clone, Copy, Debug, Default)]
struct Level {
    is_cast: bool,
    is_operator: bool,
    set: Set,
}

#[derive(Debug, Default)]
struct Writer {
    sql: String,
    level: Level,
    outer: Vec<Level>,
}

impl Writer {
    fn put(&mut self, tokens: &[Token<'_>], at: usize) {
        let token = &tokens[at];
        let before = at.checked_sub(1).map(|before| &tokens[before]);
        self.space(token, before);
        match token.kind {
            Kind::Word if token.is_keyword() => {
                match token.text {
                    "SET" => self.level.set = Set::Column,
                    "FROM" | "WHERE" | "RETURNING" => self.level.set = Set::Outside,
                    _ => {}
                }
                self.sql.push_str(token.text);
            }
            Kind::Word => {
                if self.is_function_or_type(tokens, at) {
                    self.sql.push_str("pg_catalog.");
                }
                self.sql.push_str(token.text);
            }
            Kind::Operator => self.operator(tokens, at),
            Kind::Mark => {
                self.enclose(token, before);
                self.sql.push_str(token.text);
            }
            _ => self.sql.push_str(token.text),
        }
    }

    /// Writes one space where the statement has any, except next to the inside of a parenthesis.
    fn space(&mut self, token: &Token<'_>, before: Option<&Token<'_>>) {
        let is_inner = token.is_mark(")") || token.is_mark(",");
        let follows_space = |before: &Token<'_>| token.is_spaced && !before.is_mark("(");
        if !is_inner && before.is_some_and(follows_space) {
            self.sql.push(' ');
        }
    }

    fn enclose(&mut self, mark: &Token<'_>, before: Option<&Token<'_>>) {
        let follows = |word| before.is_some_and(|before| before.is_word(word));
        match mark.text {
            "(" => {
                self.outer.push(self.level);
                self.level = Level {
                    is_cast: follows("CAST"),
                    is_operator: follows("OPERATOR"),
                    set: Set::Outside,
                };
            }
            ")" => self.level = self.outer.pop().unwrap_or_default(),
            "," if self.level.set == Set::Value => self.level.set = Set::Column,
            ";" => self.level = Level::default(),
            _ => {}
        }
    }

    fn is_function_or_type(&self, tokens: &[Token<'_>], at: usize) -> bool {
        let before = at.checked_sub(1).map(|before| &tokens[before]);
        let follows_mark = |mark| before.is_some_and(|before| before.is_mark(mark));
        let follows = |word| before.is_some_and(|before| before.is_word(word));
        let next = tokens.get(at + 1);
        let precedes = |mark| next.is_some_and(|next| next.is_mark(mark));
        if follows_mark(".") || precedes(".") {
            return false;
        }
        let is_literals_type = next.is_some_and(|next| next.kind == Kind::Text);
        if follows_mark("::") || is_literals_type || follows("AS") && self.level.is_cast {
            return true;
        }
        precedes("(") && !follows("AS") && !follows("INTO") && !is_named_query(tokens, at + 1)
    }

    fn operator(&mut self, tokens: &[Token<'_>], at: usize) {
        let operator = tokens[at].text;
        let has_left = at
            .checked_sub(1)
            .is_some_and(|left| tokens[left].is_operand());
        let next = |nth| tokens.get(at + nth);
        let is_sign = matches!(operator, "-" | "+")
            && !has_left
            && next(1).is_some_and(|next| next.kind == Kind::Number)
            && !next(2).is_some_and(|next| next.is_mark("::"));
        let is_assignment = operator == "=" && self.level.set == Set::Column;
        let is_star = operator == "*" && !has_left;
        if is_assignment {
            self.level.set = Set::Value;
        }
        if self.level.is_operator || is_sign || is_assignment || is_star || operator == "=>" {
            self.sql.push_str(operator);
            return;
        }
        if self.sql.ends_with(is_word) {
            self.sql.push(' ');
        }
        super::put!(self.sql, "OPERATOR(pg_catalog.{operator})");
    }
}

/// Returns whether the parenthesis has the columns of a query in a `WITH`: `AS` and the query
/// follow.
fn is_named_query(tokens: &[Token<'_>], open: usize) -> bool {
    let mut depth = 0_usize;
    let close = tokens[open..].iter().position(|token| {
        if token.is_mark("(") {
            depth += 1;
        } else if token.is_mark(")") {
            depth -= 1;
        }
        depth == 0
    });
    let Some(after) = close.map(|close| open + close + 1) else {
        return false;
    };
    let query = |token: &Token<'_>| {
        token.is_mark("(") || token.is_word("MATERIALIZED") || token.is_word("NOT")
    };
    tokens.get(after).is_some_and(|token| token.is_word("AS"))
        && tokens.get(after + 1).is_some_and(query)
}

#[cfg(test)]
mod tests {
    use super::{Part, fill, number, parts, qualify};

    #[track_caller]
    fn becomes(plain: &str, qualified: &str) {
        assert_eq!(qualify(plain), qualified);
    }

    #[test]
    fn operators_functions_and_types_are_qualified() {
        becomes(
            "SELECT count(*) FROM {table} WHERE until > now() AND key = :key::bytea",
            "SELECT pg_catalog.count(*) FROM {table} WHERE until OPERATOR(pg_catalog.>) pg_catalog.now() \
             AND key OPERATOR(pg_catalog.=) :key::pg_catalog.bytea",
        );
        becomes(
            "SELECT CAST(a||b AS text[]), float8 '1', interval '1 ms', lower (x) <= -1",
            "SELECT CAST(a OPERATOR(pg_catalog.||)b AS pg_catalog.text[]), pg_catalog.float8 '1', \
             pg_catalog.interval '1 ms', pg_catalog.lower (x) OPERATOR(pg_catalog.<=) -1",
        );
        becomes(
            "SELECT a=-1, a - -b, -1::int8, (x)*2",
            "SELECT a OPERATOR(pg_catalog.=)-1, a OPERATOR(pg_catalog.-) OPERATOR(pg_catalog.-)b, \
             OPERATOR(pg_catalog.-)1::pg_catalog.int8, (x)OPERATOR(pg_catalog.*)2",
        );
    }

    #[test]
    fn keywords_strings_and_the_users_names_stay() {
        for same in [
            r#"SELECT COALESCE("now"(a.b, 'x = y -- z'), E'\' = now()', GREATEST(:a)) FROM "t""#,
            "SELECT pg_catalog.now(), t.*, * FROM t AS l (count) FOR UPDATE OF l SKIP LOCKED",
            "WITH a (b) AS MATERIALIZED (SELECT 1), c (d) AS (SELECT 2) SELECT INTERVAL '1 ms', f.x",
            "INSERT INTO t (now, key) SELECT $1, {value} ON CONFLICT (key) DO NOTHING",
            "SELECT a OPERATOR(pg_catalog.+) b, ARRAY(SELECT 1)",
        ] {
            becomes(same, same);
        }
    }

    #[test]
    fn an_assignment_is_no_operator() {
        becomes(
            "UPDATE t SET a = b = c, d = f(x, y = z), (e, g) = (1, 2) FROM u WHERE a = b",
            "UPDATE t SET a = b OPERATOR(pg_catalog.=) c, d = pg_catalog.f(x, y OPERATOR(pg_catalog.=) z), \
             (e, g) = (1, 2) FROM u WHERE a OPERATOR(pg_catalog.=) b",
        );
        becomes(
            "WITH a AS (UPDATE t SET b = 1), c AS (SELECT d = 2) SELECT e = 3",
            "WITH a AS (UPDATE t SET b = 1), c AS (SELECT d OPERATOR(pg_catalog.=) 2) SELECT e OPERATOR(pg_catalog.=) 3",
        );
    }

    #[test]
    fn comments_and_line_breaks_are_left_out() {
        becomes(
            "-- all = rows\nSELECT (\n    a, /* both */ b\n)\nFROM t",
            "SELECT (a, b) FROM t",
        );
    }

    #[test]
    fn a_statement_is_split_at_its_values() {
        let sql = "SELECT ':no', a::int8, :key, b[:at]";
        let expected = [
            Part::Sql("SELECT ':no', a::int8, "),
            Part::Value("key"),
            Part::Sql(", b["),
            Part::Value("at"),
            Part::Sql("]"),
        ];
        assert_eq!(parts(sql), expected);
        assert_eq!(
            number(sql, &["at", "key"]),
            "SELECT ':no', a::int8, $2, b[$1]"
        );
    }

    #[test]
    fn a_fragment_can_contain_others() {
        let find = |name: &str| match name {
            "row" => Some("key FROM {table}"),
            "table" => Some("\"t\""),
            _ => None,
        };
        let sql = "SELECT {row} WHERE key = '{{a,b}}' -- {none}";
        let filled = "SELECT key FROM \"t\" WHERE key = '{{a,b}}' -- {none}";
        assert_eq!(fill(sql, &find), filled);
    }

    #[test]
    fn an_unfinished_statement_is_no_panic() {
        for sql in [
            "'a", "E'\\", "\"", "{", ")", "f(", "$", ":", "a.", "/*", "é(ü)",
        ] {
            drop(qualify(sql));
        }
    }
}
