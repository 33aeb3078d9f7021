//! The attributes with their arguments: every argument is here, and one that takes an expression uses the parameter.

/// What kind of function has the attribute.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Async,
    Plain,
}

/// An attribute, and what its function has beside the parameter.
#[derive(Clone, Copy)]
pub(super) struct Site {
    pub(super) name: &'static str,
    pub(super) form: Form,
    /// Empty for the function without an attribute.
    pub(super) attribute: &'static str,
    /// `{word}` and `{number}` are the function's own, `{read}` and `{held}` the parameter's.
    pub(super) arguments: &'static str,
    pub(super) params: &'static str,
    pub(super) given: &'static str,
    /// A statement that uses the connection.
    pub(super) uses: &'static str,
    /// Whether the lock uses the parameter while the body runs, which can only share it then.
    pub(super) shares: bool,
    /// Whether the attribute uses the parameter after the body.
    pub(super) is_late: bool,
}

/// Without an attribute.
const NONE: Site = Site {
    name: "none",
    form: Form::Async,
    attribute: "",
    arguments: "",
    params: "conn: &mut AsyncPgConnection, _id: i64",
    given: "any(), 1",
    uses: "touch(conn).await?;",
    shares: false,
    is_late: false,
};

const LOCK: Site = Site {
    attribute: "advisory_lock",
    params: "conn: &mut AsyncPgConnection, id: i64",
    ..NONE
};

const POOL: Site = Site {
    params: "pool: &Bb8, id: i64",
    uses: "touch(&mut *conn).await?;",
    ..LOCK
};

const LEASE: Site = Site {
    attribute: "advisory_lease",
    uses: "touch(&mut *pool.get().await?).await?;",
    ..POOL
};

const PLAIN: Site = Site {
    form: Form::Plain,
    params: "conn: &mut PgConnection, id: i64",
    uses: "touch(conn)?;",
    ..LOCK
};

pub(super) const SITES: [Site; 28] = [
    NONE,
    Site {
        name: "options",
        arguments: "key = \"{word}:<id>\", name = \"{word}\", component = \"all\", mode = \"shared\", isolation = \"serializable\", \
                    nested = \"refuse\", derivation = \"md5\", allow_ambiguous = \"deployed\", allow_overlap(\"*\", \"deployed\"), \
                    wait = \"5s\", on_held = {held}, max_hold = \"30s\", handle = lock",
        uses: "let _ = lock.key(); touch(conn).await?;",
        ..LOCK
    },
    Site {
        name: "session",
        arguments: "key = \"{word}:<id>\", scope = \"session\", guards = \"rooms\", allow_redundant = \"a sum needs it\", wait = millis({read}), \
                    poll = millis({read}), poll_max = millis({read})",
        ..LOCK
    },
    Site {
        name: "values",
        arguments: "key = \"{word}:<n: int>:<id>\", with(n = {read}), wait = millis({read}), on_held = {held}, max_hold = millis({read})",
        ..LOCK
    },
    Site {
        name: "err",
        arguments: "key = (7, \"{word}:<id>\"), derivation = \"hashtext\", err = |_| fail({read})",
        is_late: true,
        ..LOCK
    },
    Site {
        name: "permits",
        arguments: "key = {number}, permits = {read}, wait = \"never\", on_held = {held}, nested = \"allow\", isolation = \"repeatable read\"",
        params: "conn: &mut AsyncPgConnection",
        given: "any()",
        ..LOCK
    },
    Site {
        name: "keys",
        arguments: "keys = [\"{word}:<ids*>\", \"{word}:<n: int>:n\"], with(n = {read}), max_keys = 3, mode = \"exclusive\"",
        params: "conn: &mut AsyncPgConnection, ids: &[i64]",
        given: "any(), &[1]",
        ..LOCK
    },
    Site {
        name: "each",
        arguments: "keys = ids.iter().map(|id| Declared { id: *id + {read} }), max_keys = 3, at = (tenant::id, {read})",
        params: "conn: &mut AsyncPgConnection, ids: &[i64]",
        given: "any(), &[1]",
        ..LOCK
    },
    Site {
        name: "declared",
        arguments: "key = Declared { id: {read} }, handle = lock",
        params: "conn: &mut AsyncPgConnection",
        given: "any()",
        uses: "needs(lock.holding()).await; touch(conn).await?;",
        shares: true,
        ..LOCK
    },
    Site {
        name: "pool",
        arguments: "key = \"{word}:<id>\", pool = pool, queue = 64, wait = \"5s\", on_held = {held}",
        ..POOL
    },
    Site {
        name: "pool_for_each_try",
        arguments: "key = \"{word}:<id>\", pool = pool, scope = \"session\", poll = millis({read})",
        ..POOL
    },
    Site {
        name: "pool_of_an_expression",
        arguments: "key = \"{word}:<id>\", pool = chosen(pool, {read})",
        shares: true,
        ..POOL
    },
    Site {
        name: "conn_of_an_expression",
        arguments: "key = \"{word}:<id>\", conn = pool.get().await?, queue = 8",
        ..POOL
    },
    Site {
        name: "conn_of_a_place",
        arguments: "key = \"{word}:<id>\", conn = owner.conn",
        params: "owner: &mut Owner, id: i64",
        uses: "touch(&mut owner.conn).await?;",
        ..LOCK
    },
    Site {
        name: "lease_options",
        arguments: "key = \"{word}:<id>\", pool = pool, ttl = \"60s\", renew = \"10s\", keep = \"1h\", wait = \"5s\", on_held = {held}, \
                    on_done = {held}, handle = lease, name = \"{word}\", component = \"all\", allow_overlap(\"*\", \"deployed\")",
        uses: "lease.complete(&mut *pool.get().await?).await?;",
        ..LEASE
    },
    Site {
        name: "lease_values",
        arguments: "key = \"{word}:<n: int>:<id>\", with(n = {read}), pool = pool, ttl = millis({read}), renew = millis({read}), \
                    keep = millis({read}), wait = millis({read}), on_done = {held}",
        ..LEASE
    },
    Site {
        name: "lease_err",
        arguments: "key = \"{word}:<id>\", pool = pool, err = |_| fail({read})",
        is_late: true,
        ..LEASE
    },
    Site {
        name: "lease_declared",
        arguments: "key = Declared { id: {read} }, pool = pool, handle = lease",
        params: "pool: &Bb8",
        given: "any()",
        uses: "needs(lease.holding()).await;",
        shares: true,
        ..LEASE
    },
    Site {
        name: "plain_none",
        attribute: "",
        params: "conn: &mut PgConnection, _id: i64",
        ..PLAIN
    },
    Site {
        name: "plain_options",
        arguments: "key = \"{word}:<id>\", name = \"{word}\", component = \"all\", mode = \"shared\", isolation = \"serializable\", \
                    nested = \"refuse\", derivation = \"fnv1a64\", allow_overlap(\"*\", \"deployed\"), wait = \"5s\", on_held = {held}, \
                    max_hold = \"30s\", handle = lock",
        uses: "let _ = lock.key(); touch(conn)?;",
        ..PLAIN
    },
    Site {
        name: "plain_values",
        arguments: "key = \"{word}:<n: int>:<id>\", with(n = {read}), wait = millis({read}), on_held = {held}, max_hold = millis({read}), \
                    guards = \"rooms\"",
        ..PLAIN
    },
    Site {
        name: "plain_err",
        arguments: "key = \"{word}:<id>\", err = |_| fail({read})",
        is_late: true,
        ..PLAIN
    },
    Site {
        name: "plain_permits",
        arguments: "key = \"{word}:<id>\", permits = {read}, poll = millis({read}), poll_max = millis({read}), wait = \"forever\"",
        ..PLAIN
    },
    Site {
        name: "plain_keys",
        arguments: "keys = [\"{word}:<ids*>\", \"{word}:<n: int>:n\"], with(n = {read}), max_keys = 3, scope = \"session\"",
        params: "conn: &mut PgConnection, ids: &[i64]",
        given: "any(), &[1]",
        ..PLAIN
    },
    Site {
        name: "plain_declared",
        arguments: "key = Declared { id: {read} }, handle = lock",
        params: "conn: &mut PgConnection",
        given: "any()",
        uses: "needs(lock.holding()); touch(conn)?;",
        ..PLAIN
    },
    Site {
        name: "plain_pool",
        arguments: "key = \"{word}:<id>\", pool = chosen(pool, {read}), queue = 64, wait = \"5s\", on_held = {held}",
        params: "pool: &R2d2, id: i64",
        ..PLAIN
    },
    Site {
        name: "plain_conn_of_an_expression",
        arguments: "key = \"{word}:<id>\", conn = pool.get()?, poll = millis({read})",
        params: "pool: &R2d2, id: i64",
        ..PLAIN
    },
    Site {
        name: "plain_conn_of_a_place",
        arguments: "key = \"{word}:<id>\", conn = owner.conn",
        params: "owner: &mut Owner<PgConnection>, id: i64",
        uses: "touch(&mut owner.conn)?;",
        ..PLAIN
    },
];
