//! The SQL that sets a database up.

use super::address::Address;
use crate::Error;

/// What `quorlock_greet` returns. It grows with every change of `sql/` that clients of before cannot do with.
pub(super) const VERSION: i64 = 1;

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
    include_str!("sql/listen.sql"),
];

/// What ends each statement.
const END: &str = "\n//\n";

/// The statements that set a database up, or bring it forward from an older version.
pub(super) fn statements() -> Vec<String> {
    let version = VERSION.to_string();
    let statements = SOURCES.iter().flat_map(|source| source.split(END));
    let statements = statements.filter(|statement| !statement.trim().is_empty());
    statements.map(|statement| statement.replace("@version@", &version)).collect()
}

/// The SQL by which somebody who may make tables and procedures in the database behind `url` sets it up for locks, as
/// `quorlock init` would. It is run with the `mysql` or `mariadb` client; the node has to be marked as new after that.
///
/// # Errors
/// [`Error::Misuse`] for a URL that cannot be read.
pub fn setup_sql(url: &str) -> Result<String, Error> {
    let address = Address::parse(0, url)?;
    let head = format!(
        "-- The tables and procedures of Quorlock, version {VERSION}, for {}\n\
         -- A user who is to lock, and nothing else, gets the right for it by\n\
         --   GRANT EXECUTE ON `{}`.* TO USER;\n\
         DELIMITER //\n",
        address.label,
        address.database.replace('`', "``")
    );
    Ok(head + &statements().join(END) + END + "DELIMITER ;\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_is_one_and_nothing_is_left_open() {
        let statements = statements();
        for statement in &statements {
            let says = statement.lines().filter(|line| !line.starts_with("--"));
            let first = says.clone().find(|line| !line.is_empty()).unwrap();
            let starts = ["SET ", "CREATE ", "DROP ", "INSERT "];
            assert!(starts.iter().any(|start| first.starts_with(start)), "{first}");
            assert!(!says.clone().any(|line| line.contains("@version@")), "{statement}");
        }
        // Functions need rights that procedures do not need where there is a binary log.
        assert!(!statements.iter().any(|statement| statement.contains("CREATE FUNCTION")));
    }

    #[test]
    fn what_is_printed_shows_no_password() {
        let sql = setup_sql("mysql://u:hunter2@h/db").unwrap();
        assert!(sql.contains("ON `db`.*") && !sql.contains("hunter2"), "{sql}");
    }
}
