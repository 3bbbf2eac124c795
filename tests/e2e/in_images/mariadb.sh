# The first start and the second: what the template holds, that no half of it is used, that data is left alone.
install -d -o mysql -g mysql /var/lib/mysql /run/mysqld
start() {
    mariadb-ensure-data /var/lib/mysql/data
    mariadbd --no-defaults --skip-ssl --skip-networking --user=mysql --datadir=/var/lib/mysql/data \
        --socket=/run/mysqld/mysqld.sock &> /tmp/mariadbd.log &
    until mariadb-admin --no-defaults --skip-ssl ping &> /dev/null; do sleep 0.05; done
}
query() {
    mariadb --no-defaults --skip-ssl --skip-column-names --execute "$1"
}
mkdir /var/lib/mysql/data.partial
touch /var/lib/mysql/data.partial/half
start
[[ ! -e /var/lib/mysql/data/half ]]
[[ -z $(query "SELECT user FROM mysql.global_priv WHERE json_value(priv, '$.authentication_string') LIKE '*%'") ]]
query 'CREATE DATABASE ours; CREATE TABLE ours.kept (number INT); INSERT INTO ours.kept VALUES (7)'
kill $(jobs -p)
wait
start
echo owner $(stat -c %u /var/lib/mysql/data)
echo kept $(query 'SELECT number FROM ours.kept')
kill $(jobs -p)
wait
