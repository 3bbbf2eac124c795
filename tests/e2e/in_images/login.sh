# One pod as a whole cluster: a user of mounted files comes by SSH, compiles an MPI program and starts it with srun.
echo 'alice:x:2001:2001::/home/alice:/bin/bash' > /var/lib/extrausers/passwd
echo 'alice:x:2001:' > /var/lib/extrausers/group
echo 'alice:*:20000:0:99999:7:::' > /var/lib/extrausers/shadow

head -c 1024 /dev/urandom > /etc/slurm/slurm.key
chown slurm: /etc/slurm/slurm.key
chmod 600 /etc/slurm/slurm.key
install -d -o slurm -g slurm /run/slurmctld /var/spool/slurmctld
echo CgroupPlugin=disabled > /etc/slurm/cgroup.conf
cat > /etc/slurm/slurm.conf <<END
ClusterName=one
SlurmctldHost=$HOSTNAME
SlurmUser=slurm
AuthType=auth/slurm
CredType=cred/slurm
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation=/var/spool/slurmctld
NodeName=$HOSTNAME CPUs=2
PartitionName=all Nodes=ALL Default=YES
END
setpriv --reuid=slurm --regid=slurm --clear-groups slurmctld -D &> /tmp/slurmctld.log &
slurmd -D &> /tmp/slurmd.log &

ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
ssh-keygen -q -t ed25519 -N '' -f ~/key
install -D ~/key.pub /keys/alice
mkdir /run/sshd
/usr/sbin/sshd -D -e -o AuthorizedKeysFile=/keys/%u &> /tmp/sshd.log &

ready() { (: < /dev/tcp/127.0.0.1/22) && [[ $(sinfo -h -o %T) == idle ]]; }
until ready 2> /dev/null; do
    (( SECONDS < 150 )) || { cat /tmp/*.log; exit 1; }
    sleep 0.1
done

ssh -i ~/key -o StrictHostKeyChecking=no -o LogLevel=ERROR alice@127.0.0.1 bash -eu <<'END' || cat /tmp/*.log
echo home $PWD
cat > ranks.c <<C
#include <mpi.h>
#include <stdio.h>
int main(int count, char **words) {
    int rank, size;
    MPI_Init(&count, &words);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("rank %d of %d\n", rank, size);
    MPI_Finalize();
}
C
mpicc -o ranks ranks.c
srun --mpi=pmi2 --ntasks=2 ./ranks
END
kill $(jobs -p)
