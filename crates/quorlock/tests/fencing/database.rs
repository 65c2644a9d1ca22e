//! Rows in a database.

use std::thread;

use quorlock_testkit::{PostgresServer, eventually, test};
use rusqlite::{Connection, ToSql};

use super::{GOT_THROUGH, REFUSED, Store, late_write_in_still_world, page};

/// What anybody would write without a fence.
const UNCHECKED: &str = "UPDATE account SET balance = :balance WHERE id = :id";
const ID: i64 = 42;

/// A database that runs the SQL of the recipes.
pub(crate) trait Database {
    /// Runs one statement, and returns how many rows it wrote.
    fn write(&self, sql: &str, values: &[(&str, i64)]) -> usize;

    /// The only column of the only row.
    fn one(&self, sql: &str) -> i64;
}

impl Database for Connection {
    fn write(&self, sql: &str, values: &[(&str, i64)]) -> usize {
        let mut statement = self.prepare(sql).expect("good SQL");
        let values: Vec<_> =
            values.iter().map(|(name, value)| (format!(":{name}"), *value)).collect();
        // It minds those that it does not know.
        let values: Vec<_> = values
            .iter()
            .filter(|(name, _)| matches!(statement.parameter_index(name), Ok(Some(_))))
            .map(|(name, value)| (name.as_str(), value as &dyn ToSql))
            .collect();
        statement.execute(values.as_slice()).expect("good SQL")
    }

    fn one(&self, sql: &str) -> i64 {
        self.query_row(sql, [], |row| row.get(0)).expect("one row")
    }
}

impl Database for PostgresServer {
    fn write(&self, sql: &str, values: &[(&str, i64)]) -> usize {
        // `UPDATE 1`, `INSERT 0 1`, `CREATE TABLE`
        let said = self.sql(sql, values);
        said.trim().rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    fn one(&self, sql: &str) -> i64 {
        self.sql(sql, &[]).trim().parse().expect("one number")
    }
}

/// A row of the recipes' table, and a way to write it.
struct Row<'a, D> {
    database: &'a D,
    write: &'static str,
}

impl<'a, D: Database> Row<'a, D> {
    /// A new row with nothing in it.
    fn new(database: &'a D, write: &'static str) -> Self {
        database.write("DROP TABLE IF EXISTS account", &[]);
        database.write(page::sql("the table"), &[]);
        database.write("INSERT INTO account (id, balance) VALUES (:id, 0)", &[("id", ID)]);
        Self { database, write }
    }
}

impl<D: Database> Store for Row<'_, D> {
    fn write(&self, fence: u64, value: i64) -> bool {
        let fence = i64::try_from(fence).expect("it fits");
        let values = [("id", ID), ("balance", value), ("fence", fence)];
        match self.database.write(self.write, &values) {
            0 => false,
            1 => true,
            more => panic!("{more} rows"),
        }
    }

    fn read(&self) -> i64 {
        self.database.one(&format!("SELECT balance FROM account WHERE id = {ID}"))
    }
}

async fn only_a_condition_refuses_the_late_write(database: &impl Database) {
    for checked in ["write a row that is there", "write a row, there or not"] {
        let row = Row::new(database, page::sql(checked));
        assert_eq!(late_write_in_still_world(&row).await, REFUSED, "{checked}");
    }
    let row = Row::new(database, UNCHECKED);
    assert_eq!(late_write_in_still_world(&row).await, GOT_THROUGH);
}

fn no_rows_mean_what_the_page_says(database: &impl Database) {
    let there = page::sql("write a row that is there");
    let either = page::sql("write a row, there or not");
    let row = Row::new(database, either);
    let write = |sql: &str, id: i64, fence: i64| {
        database.write(sql, &[("id", id), ("balance", 7), ("fence", fence)])
    };
    let new = ID + 1;
    assert_eq!(write(there, new, 33), 0, "there is no such row");
    assert_eq!(write(either, new, 34), 1, "there was none");
    assert_eq!((write(either, new, 33), write(there, new, 33)), (0, 0), "too late");
    assert_eq!((write(either, new, 34), write(there, new, 35)), (1, 1));
    let fence = |id| database.one(&format!("SELECT fence FROM account WHERE id = {id}"));
    assert_eq!((fence(new), fence(ID)), (35, 0));
    assert_eq!(row.read(), 0, "another row was written");
}

/// A holder that wants to read first raises the fence, and nobody before it changes what it reads.
fn who_raised_it_can_read(database: &impl Database) {
    let (raise, read) =
        page::sql("raise the fence, then read").split_once('\n').expect("two statements");
    let row = Row::new(database, page::sql("write a row that is there"));
    assert!(row.write(33, 1));
    assert_eq!(database.write(raise, &[("id", ID), ("fence", 34)]), 1);
    assert!(!row.write(33, 2), "what is read would change under the reader");
    assert_eq!(database.one(&read.replace(":id", &ID.to_string())), 1);
    assert_eq!(database.write(raise, &[("id", ID), ("fence", 33)]), 0);
}

fn one_row_for_each_lock(database: &impl Database) {
    database.write(page::sql("a row for each lock"), &[]);
    let raise = |fence| database.write(page::sql("first in the transaction"), &[("fence", fence)]);
    assert_eq!((raise(33), raise(33), raise(34)), (1, 1, 1));
    assert_eq!(raise(33), 0);
    assert_eq!(database.one("SELECT number FROM fence WHERE lock_name = 'orders'"), 34);
}

/// A later holder is in the middle of its transaction when an earlier one begins.
fn transactions_come_one_after_the_other(server: &PostgresServer) {
    let first = page::sql("first in the transaction");
    server.sql("DELETE FROM fence", &[]);
    // It goes on when somebody waits for it.
    let later = format!(
        "BEGIN; {first}
         DO $$ BEGIN
             WHILE NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock')
                   AND clock_timestamp() < now() + interval '10 s' LOOP
                 PERFORM pg_sleep(0.002), pg_stat_clear_snapshot();
             END LOOP;
         END $$;
         COMMIT;"
    );
    let in_the_middle = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DO %'";
    let meanwhile = |other: &str, fence: i64| {
        thread::scope(|scope| {
            let later = scope.spawn(|| server.sql(&later, &[("fence", 34)]));
            eventually("the later one has begun", || server.one(in_the_middle) == 1);
            let other = scope.spawn(move || server.sql(other, &[("fence", fence)])).join();
            assert_eq!(later.join().expect("no panic"), "BEGIN\nINSERT 0 1\nDO\nCOMMIT\n");
            other.map_err(|said| said.downcast_ref::<String>().expect("a text").clone())
        })
    };
    assert_eq!(meanwhile(first, 33), Ok("INSERT 0 0\n".to_owned()));
    let strict = format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {first} COMMIT;");
    let said = meanwhile(&strict, 35).expect_err("it cannot be put in order");
    assert!(said.contains("could not serialize access"), "{said}");
}

fn sqlite() -> Connection {
    Connection::open_in_memory().expect("a database")
}

#[test(start_paused = true)]
async fn in_sqlite_only_a_condition_refuses_the_late_write() {
    only_a_condition_refuses_the_late_write(&sqlite()).await;
}

#[test]
fn in_sqlite_rows_are_counted_and_raised_as_the_page_says() {
    no_rows_mean_what_the_page_says(&sqlite());
    who_raised_it_can_read(&sqlite());
    one_row_for_each_lock(&sqlite());
}

#[test(start_paused = true)]
async fn in_postgres_only_a_condition_refuses_the_late_write() {
    only_a_condition_refuses_the_late_write(&PostgresServer::start()).await;
}

#[test]
fn in_postgres_rows_are_counted_and_raised_as_the_page_says() {
    let server = PostgresServer::start();
    no_rows_mean_what_the_page_says(&server);
    who_raised_it_can_read(&server);
    one_row_for_each_lock(&server);
    transactions_come_one_after_the_other(&server);
}
