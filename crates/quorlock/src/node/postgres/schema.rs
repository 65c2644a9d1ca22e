//! The SQL that sets a database up.

use super::address::Address;
use crate::Error;

/// What `version()` of a schema returns. It grows with every change of `sql/` that clients of before cannot do with.
pub(super) const VERSION: i32 = 1;

const SOURCES: &[&str] = &[
    include_str!("sql/tables.sql"),
    include_str!("sql/rules.sql"),
    include_str!("sql/participants.sql"),
    include_str!("sql/pass_on.sql"),
    include_str!("sql/acquire.sql"),
    include_str!("sql/confirm.sql"),
    include_str!("sql/extend.sql"),
    include_str!("sql/release.sql"),
    include_str!("sql/force_release.sql"),
    include_str!("sql/wait.sql"),
    include_str!("sql/looks.sql"),
    include_str!("sql/mark.sql"),
    include_str!("sql/tend.sql"),
    include_str!("sql/forget.sql"),
    include_str!("sql/check_in.sql"),
    include_str!("sql/rights.sql"),
];

/// Has tables logged or not that are there already.
const PERSISTENCE: &str = "
ALTER TABLE @schema@.lock SET @persistence@;
ALTER TABLE @schema@.participant SET @persistence@;
ALTER TABLE @schema@.ticket SET @persistence@;
ALTER TABLE @schema@.marker SET @persistence@;
ALTER TABLE @schema@.sweep SET @persistence@;
";

/// Sets a schema up, or brings it forward from an older version. Several may run it at once: one of them does it.
pub(super) fn sql(address: &Address) -> String {
    let begin = format!(
        "BEGIN;\nSELECT pg_advisory_xact_lock({});\n",
        // Of nobody else's, as far as can be: the first bytes of the word quorlock.
        i64::from_be_bytes(*b"quorlock")
    );
    let mut sql = begin + &SOURCES.join("\n");
    if let Some(durable) = address.durable {
        sql.push_str(
            &PERSISTENCE.replace("@persistence@", if durable { "LOGGED" } else { "UNLOGGED" }),
        );
    }
    sql.push_str("\nCOMMIT;\n");
    let unlogged = if address.durable == Some(true) { "" } else { "UNLOGGED" };
    sql.replace("@schema@", &address.schema)
        .replace("@unlogged@", unlogged)
        .replace("@version@", &VERSION.to_string())
}

/// The SQL by which an owner of the database behind `url` sets it up for locks, as `quorlock init` would. It is
/// run with `psql`; the node has to be marked as new after that.
///
/// # Errors
/// [`Error::Misuse`] for a URL that cannot be read.
pub fn setup_sql(url: &str) -> Result<String, Error> {
    let address = Address::parse(0, url)?;
    let head = format!(
        "-- The schema {schema}, version {VERSION}, for {}\n\
         -- A role that is to lock, and nothing else, gets the rights for it by\n\
         --   SELECT {schema}.let_lock('ROLE');\n",
        address.label,
        schema = address.schema
    );
    Ok(head + &sql(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_open_is_filled_in() {
        let sql = setup_sql("postgres://u:hunter2@h/db?schema=locks&durable=1").unwrap();
        assert!(sql.contains("CREATE  TABLE IF NOT EXISTS locks.lock"), "{sql}");
        assert!(!sql.contains("quorlock.lock") && !sql.contains("hunter2"));
        for open in ["@schema@", "@unlogged@", "@version@", "@persistence@"] {
            assert!(!sql.contains(open), "{open}");
        }
        assert!(
            setup_sql("postgres://h")
                .unwrap()
                .contains("CREATE UNLOGGED TABLE IF NOT EXISTS quorlock.lock")
        );
    }
}
