. "$LAB_HERE/faults.sh"
cluster_up --set mds.repair_files=4 --set mds.repair_wait=20s
guest -t 3000 1 zfsx.sh ${FSX_FILES:-60} &
wait
until_repaired 60
tell mirror verify -r / 2>&1 | tail -5 | sed 's/^/# /'
metric mds weft_mds_contended_files | sed 's/^/# contended /'
